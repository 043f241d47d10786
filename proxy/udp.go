package proxy

import (
	"net/netip"
	"time"

	"github.com/miekg/dns"
)

// pause is how long a loop rests after an error that passes, such as a lack of
// buffers or file descriptors.
const pause = 5 * time.Millisecond

// readUDP takes packets off the socket and gives each to the crew.
func (l *listener) readUDP() {
	for {
		buf := replyBuffers.Get().(*[replyBuffer]byte)
		n, from, err := l.udp.ReadFromUDPAddrPort(buf[:])
		if err == nil && l.take(buf, n, from) {
			continue // the worker has the buffer
		}
		replyBuffers.Put(buf)
		if err != nil {
			if final(err) {
				return
			}
			time.Sleep(pause)
		}
	}
}

// take starts the answer to a packet, if it is admitted. It reports whether the
// buffer is in use.
func (l *listener) take(buf *[replyBuffer]byte, n int, from netip.AddrPort) bool {
	packet := buf[:n]
	if !isQuery(packet) {
		l.s.stats.Malformed.Add(1)
		return false
	}
	if l.s.probes.take(packet) {
		return false // of the self-test: that it came is the answer
	}
	who := l.s.identify(from.Addr(), l.addr.Addr())
	if who.young {
		l.hold(packet, who, from)
		return false
	}
	switch l.s.paced(who) {
	case silence:
		return false
	case overPace:
		l.reply(brief(packet, dns.RcodeServerFailure), from)
		return false
	}
	if !who.known {
		l.s.stats.Strangers.Add(1)
		l.reply(brief(packet, dns.RcodeRefused), from)
		return false
	}
	p, ok := l.s.admit(who)
	if !ok {
		l.reply(brief(packet, dns.RcodeServerFailure), from)
		return false
	}
	l.work.Add(1)
	l.s.crew.do(func() {
		defer l.work.Done()
		l.reply(l.s.handle(packet, who, false), from)
		l.s.release(p)
		replyBuffers.Put(buf)
	})
	return true
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
	if l.s.shed(&l.s.loads.strangers) == overPace {
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
