package proxy

import (
	"log/slog"
	"net/netip"
	"runtime/debug"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// pause is how long a loop rests after an error that passes, such as a lack of
// buffers or file descriptors.
const pause = 5 * time.Millisecond

// readUDP takes packets off the socket, gives those their replies that can have
// them at once, and the others to the crew.
func (l *listener) readUDP() {
	for {
		n, err := l.batch.receive()
		if err != nil {
			if final(err) {
				return
			}
			time.Sleep(pause)
			continue
		}
		started := l.s.now()
		for i := range n {
			packet, from := l.batch.packet(i)
			l.take(i, packet, from, started)
		}
		l.letters.post()
		if lost := l.batch.flush(); lost > 0 {
			l.s.stats.RepliesLost.Add(uint64(lost))
		}
	}
}

// take answers packet i or starts its answer, if it is admitted.
func (l *listener) take(i int, packet []byte, from netip.AddrPort, started time.Time) {
	defer func() {
		if r := recover(); r != nil {
			l.s.stats.Panics.Add(1)
			l.s.logger.Error("a packet ended in a fault of the proxy", slog.Any("fault", r), slog.String("stack", string(debug.Stack())))
		}
	}()
	if !isQuery(packet) {
		l.s.stats.Malformed.Add(1)
		return
	}
	if l.s.probes.take(packet) {
		return // of the self-test: that it came is the answer
	}
	who := l.s.identify(from.Addr(), l.addr.Addr())
	if who.young {
		l.hold(packet, who, from)
		return
	}
	switch l.s.paced(who, started.Sub(l.s.born)) {
	case silence:
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
	var plain *quick
	if q, ok := readQuick(packet); ok {
		n, kept := l.s.replayed(&q, &who, started, l.batch.room())
		switch {
		case n > 0:
			l.batch.reply(i, n)
			return
		case !kept:
			plain = &q
		}
	}
	p, ok := l.s.admit(who)
	switch {
	case !ok:
		l.refuse(i, packet, dns.RcodeServerFailure)
	case plain == nil || !l.express(plain, &who, from, p, started):
		l.long(packet, who, from, p)
	}
}

// refuse queues a reply without records for packet i.
func (l *listener) refuse(i int, packet []byte, rcode int) {
	l.batch.reply(i, len(appendBrief(l.batch.room()[:0], packet, rcode)))
}

// packetRoom holds nearly every query.
const packetRoom = 512

var packetRooms = sync.Pool{New: func() any { return new([packetRoom]byte) }}

// long gives an admitted query to the crew, which works on a copy.
func (l *listener) long(packet []byte, who asker, from netip.AddrPort, p place) {
	room := packetRooms.Get().(*[packetRoom]byte)
	kept := append(room[:0], packet...)
	l.work.Add(1)
	l.s.crew.do(func() {
		defer l.work.Done()
		l.reply(l.s.handle(kept, who, false), from)
		l.s.release(p)
		packetRooms.Put(room)
	})
}

// hold makes a query wait for its source to be known. It keeps a copy: what waits
// is small, and the buffer is not.
func (l *listener) hold(packet []byte, who asker, from netip.AddrPort) {
	kept := append([]byte(nil), packet...)
	l.work.Add(1)
	ok := l.s.hold(who, l.addr.Addr(), func(who asker) {
		defer l.work.Done()
		l.reply(l.s.resumed(kept, who, false), from)
	})
	if ok {
		return
	}
	l.work.Done()
	if l.s.shed(&l.s.loads.strangers, l.s.elapsed()) == overPace {
		l.reply(brief(packet, dns.RcodeServerFailure), from)
	}
}

func (l *listener) reply(wire []byte, to netip.AddrPort) {
	if wire == nil {
		return
	}
	if _, err := l.udp.WriteToUDPAddrPort(wire, to); err != nil {
		l.s.stats.RepliesLost.Add(1)
	}
}
