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
	who := l.s.identify(from.Addr(), l.addr.Addr())
	if !l.s.paced(who) {
		return false
	}
	if !isQuery(packet) {
		l.s.stats.Malformed.Add(1)
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

func (l *listener) reply(wire []byte, to netip.AddrPort) {
	if wire == nil {
		return
	}
	if _, err := l.udp.WriteToUDPAddrPort(wire, to); err != nil {
		l.s.stats.RepliesLost.Add(1)
	}
}
