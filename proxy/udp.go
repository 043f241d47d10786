package proxy

import (
	"net/netip"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/wire"
)

// pause is how long a loop rests after an error that passes, such as a lack of
// buffers or file descriptors.
const pause = 5 * time.Millisecond

// readUDP takes packets off the socket and answers them, or starts their queries.
func (l *listener) readUDP() {
	for {
		n, err := l.reader.Receive()
		if err != nil {
			if final(err) {
				return
			}
			time.Sleep(pause)
			continue
		}
		l.takeAll(n)
	}
}

// takeAll takes the packets that came together, and sends what they led to.
func (l *listener) takeAll(n int) {
	l.s.protect("a batch of packets", func() {
		defer l.flush()
		defer l.queries.Send()
		started := l.s.now()
		for i := range n {
			packet, from := l.reader.Packet(i)
			l.take(i, packet, from, started)
		}
	})
}

func (l *listener) flush() {
	if lost := l.reader.Flush(); lost > 0 {
		l.s.stats.RepliesLost.Add(uint64(lost))
	}
}

// take answers packet i or starts its query.
func (l *listener) take(i int, packet []byte, from netip.AddrPort, started time.Time) {
	if !l.s.protect("a packet", func() { l.packet(i, packet, from, started) }) {
		l.refuse(i, packet, dns.RcodeServerFailure)
	}
}

// packet identifies the client and answers from the packet cache, or starts the query.
func (l *listener) packet(i int, packet []byte, from netip.AddrPort, started time.Time) {
	s := l.s
	if !wire.IsQuery(packet) {
		s.stats.Malformed.Add(1)
		return
	}
	if s.probes.take(packet) {
		return // of the self-test: that it came is the answer
	}
	s.step("packet")
	c := s.identify(from.Addr(), l.addr.Addr())
	s.step("identified")
	if c.unidentified {
		l.park(packet, c, from)
		return
	}
	switch s.paced(c, started.Sub(s.born)) {
	case drop:
		return
	case overPace:
		l.refuse(i, packet, dns.RcodeServerFailure)
		return
	}
	if !c.known {
		s.stats.Strangers.Add(1)
		l.refuse(i, packet, dns.RcodeRefused)
		return
	}
	view, plain := wire.ParseQuery(packet)
	kept := false
	if plain {
		var n int
		if n, kept = s.cached(&view, &c, started, l.reader.Room()); n > 0 {
			l.reader.Reply(i, n)
			return
		}
	}
	l.query(i, packet, &c, from, &view, plain, kept, started)
}

// query starts the query of packet i if it is admitted. Its view counts where it is plain;
// kept: the cache has an answer.
func (l *listener) query(i int, packet []byte, c *identity, from netip.AddrPort, view *wire.QueryView, plain, kept bool, started time.Time) {
	s := l.s
	slot, ok := s.admit(*c)
	if !ok {
		l.refuse(i, packet, dns.RcodeServerFailure)
		return
	}
	l.work.Add(1)
	q := s.newQuery(packet, fromUDP, c, nil, started)
	q.udp = udpReplier{l, from}
	q.to, q.slot = &q.udp, slot
	if plain {
		q.setView(view)
	}
	if plain && !kept && (view.Type() == dns.TypeA || view.Type() == dns.TypeAAAA) {
		q.missed, q.batch = true, &l.queries
		q.run()
		return
	}
	s.workers.do(q.run) // it is for the dns library
}

// refuse queues a reply without records for packet i.
func (l *listener) refuse(i int, packet []byte, rcode int) {
	l.reader.Reply(i, len(wire.AppendErrorReply(l.reader.Room()[:0], packet, rcode)))
}

// park makes a query wait for its source to be known.
func (l *listener) park(packet []byte, c identity, from netip.AddrPort) {
	l.work.Add(1)
	ok := false
	defer func() {
		if !ok {
			l.work.Done()
		}
	}()
	to := &udpReplier{l, from}
	if ok = l.s.park(c, &parkedQuery{local: l.addr.Addr(), packet: append([]byte(nil), packet...), from: fromUDP, to: to}); ok {
		return
	}
	if l.s.shed(l.s.clients.Unknown(), l.s.elapsed()) == overPace {
		l.reply(wire.ErrorReply(packet, dns.RcodeServerFailure), from)
	}
}

// udpReplier replies to a client over UDP.
type udpReplier struct {
	l  *listener
	to netip.AddrPort
}

// reply implements replier. A batched reply counts as the listener's work until it is sent.
func (u *udpReplier) reply(packet []byte, batched bool) {
	if batched {
		u.l.work.Add(1)
		if u.l.replies.Put(packet, u.to) {
			return
		}
		u.l.work.Done()
	}
	u.l.reply(packet, u.to)
}

// done implements replier.
func (u *udpReplier) done(*query) { u.l.work.Done() }

func (l *listener) reply(packet []byte, to netip.AddrPort) {
	l.s.step("reply")
	if _, err := l.udp.WriteToUDPAddrPort(packet, to); err != nil {
		l.s.stats.RepliesLost.Add(1)
	}
}
