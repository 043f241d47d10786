package proxy

import (
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/limit"
	"github.com/namegate/namegate/proxy/wire"
)

// pause is how long a loop rests after an error that passes, such as a lack of
// buffers or file descriptors.
const pause = 5 * time.Millisecond

// readUDP takes packets off the socket, gives those their replies that can have
// them at once, and the others to the crew.
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
	defer l.s.net("a batch of packets")
	defer l.flush()
	defer l.queries.Send()
	started := l.s.now()
	for i := range n {
		packet, from := l.reader.Packet(i)
		l.take(i, packet, from, started)
	}
}

func (l *listener) flush() {
	if lost := l.reader.Flush(); lost > 0 {
		l.s.stats.RepliesLost.Add(uint64(lost))
	}
}

// take answers packet i or starts its answer, if it is admitted.
func (l *listener) take(i int, packet []byte, from netip.AddrPort, started time.Time) {
	var p limit.Slot // none is taken yet, or the query has been handed on with it
	defer func() {
		if r := recover(); r != nil {
			l.s.fault("a packet", r)
			if p.Held() {
				l.s.clients.Release(p)
			}
			l.refuse(i, packet, dns.RcodeServerFailure)
		}
	}()
	if !wire.IsQuery(packet) {
		l.s.stats.Malformed.Add(1)
		return
	}
	if l.s.probes.take(packet) {
		return // of the self-test: that it came is the answer
	}
	l.s.step("packet")
	who := l.s.identify(from.Addr(), l.addr.Addr())
	l.s.step("identified")
	if who.young {
		l.hold(packet, who, from)
		return
	}
	switch l.s.paced(who, started.Sub(l.s.born)) {
	case drop:
		return
	case overPace:
		l.refuse(i, packet, dns.RcodeServerFailure)
		return
	}
	if !who.known {
		l.s.stats.Strangers.Add(1)
		l.refuse(i, packet, dns.RcodeRefused)
		return
	}
	var plain *wire.QueryView
	if q, ok := wire.ParseQuery(packet); ok {
		n, kept := l.s.replayed(&q, &who, started, l.reader.Room())
		switch {
		case n > 0:
			l.reader.Reply(i, n)
			return
		case !kept:
			plain = &q
		}
	}
	var ok bool
	p, ok = l.s.admit(who)
	switch {
	case !ok:
		l.refuse(i, packet, dns.RcodeServerFailure)
	case plain == nil || !l.express(plain, &who, from, &p, started):
		l.long(packet, who, from, &p)
	}
}

// refuse queues a reply without records for packet i.
func (l *listener) refuse(i int, packet []byte, rcode int) {
	l.reader.Reply(i, len(wire.AppendErrorReply(l.reader.Room()[:0], packet, rcode)))
}

// packetRoom holds nearly every query.
const packetRoom = 512

var packetRooms = sync.Pool{New: func() any { return new([packetRoom]byte) }}

// long gives an admitted query to the crew, which works on a copy. It takes p over.
func (l *listener) long(packet []byte, who asker, from netip.AddrPort, p *limit.Slot) {
	l.s.step("admitted")
	room := packetRooms.Get().(*[packetRoom]byte)
	q := &task{s: l.s, packet: append(room[:0], packet...), who: who, slot: *p,
		reply: func(wire []byte) { l.reply(wire, from) }, done: func() { packetRooms.Put(room); l.work.Done() }}
	l.work.Add(1)
	*p = limit.Slot{}
	l.s.crew.do(q.run)
}

// hold makes a query wait for its source to be known. It keeps a copy: what waits
// is small, and the buffer is not.
func (l *listener) hold(packet []byte, who asker, from netip.AddrPort) {
	q := &task{s: l.s, packet: append([]byte(nil), packet...),
		reply: func(wire []byte) { l.reply(wire, from) }, done: l.work.Done}
	l.work.Add(1)
	ok := false
	defer func() {
		if !ok {
			l.work.Done()
		}
	}()
	if ok = l.s.hold(who, l.addr.Addr(), q); ok {
		return
	}
	if l.s.shed(l.s.clients.Unknown(), l.s.elapsed()) == overPace {
		l.reply(wire.ErrorReply(packet, dns.RcodeServerFailure), from)
	}
}

func (l *listener) reply(wire []byte, to netip.AddrPort) {
	if wire == nil {
		return
	}
	l.s.step("reply")
	if _, err := l.udp.WriteToUDPAddrPort(wire, to); err != nil {
		l.s.stats.RepliesLost.Add(1)
	}
}

// queue sends a reply, which is lent, with the next Send of the queues. It counts as
// the listener's work until then.
func (l *listener) queue(wire []byte, to netip.AddrPort) {
	l.work.Add(1)
	if !l.replies.Put(wire, to) {
		l.work.Done()
		l.reply(wire, to)
	}
}
