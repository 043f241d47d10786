package proxy

import (
	"net/netip"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// outboxMost bounds the replies that wait to be sent: beyond it whoever has one
// sends it itself.
const outboxMost = 1024

// outbox sends a listener's replies over UDP, those that belong together with one
// call.
type outbox struct {
	l *listener

	mu      sync.Mutex
	waiting parcel

	posting sync.Mutex // of what follows
	parcel  parcel
	names   [batchMost]unix.RawSockaddrInet6
	out     outgoing
	lost    func(int, error) // made once
}

// parcel is replies, one behind the other.
type parcel struct {
	bytes []byte
	ends  []int // of each in bytes
	to    []netip.AddrPort
}

func (p *parcel) reset() { p.bytes, p.ends, p.to = p.bytes[:0], p.ends[:0], p.to[:0] }

// outboxes are those in which something waits.
type outboxes struct {
	mu   sync.Mutex
	list []*outbox
}

func newOutbox(l *listener) *outbox {
	o := &outbox{l: l, lost: func(int, error) { l.s.stats.RepliesLost.Add(1) }}
	o.out.hasty = true // who posts has others to tell of their grants
	return o
}

// put has a reply sent with the next flush; it counts as the listener's work until
// then. The wire is lent.
func (o *outbox) put(wire []byte, to netip.AddrPort) {
	o.mu.Lock()
	p := &o.waiting
	n := len(p.to)
	if n < outboxMost {
		o.l.work.Add(1)
		p.bytes = append(p.bytes, wire...)
		p.ends, p.to = append(p.ends, len(p.bytes)), append(p.to, to)
	}
	o.mu.Unlock()
	switch n {
	case 0:
		all := &o.l.s.outboxes
		all.mu.Lock()
		all.list = append(all.list, o)
		all.mu.Unlock()
	case outboxMost:
		o.l.reply(wire, to)
	}
}

// flush sends what waits anywhere.
func (all *outboxes) flush() {
	for {
		all.mu.Lock()
		n := len(all.list)
		if n == 0 {
			all.mu.Unlock()
			return
		}
		o := all.list[n-1]
		all.list = all.list[:n-1]
		all.mu.Unlock()
		o.post()
	}
}

func (o *outbox) post() {
	o.posting.Lock()
	defer o.posting.Unlock()
	p := &o.parcel
	o.mu.Lock()
	*p, o.waiting = o.waiting, *p
	o.mu.Unlock()
	defer func() { // also after a fault
		o.l.work.Add(-len(p.to))
		p.reset()
	}()
	begin := 0
	for i, end := range p.ends {
		name := &o.names[o.out.count]
		n := receiver(name, p.to[i])
		o.out.add(p.bytes[begin:end], unsafe.Pointer(name), n)
		begin = end
		if o.out.full() {
			o.out.post(o.l.raw, o.lost)
		}
	}
	o.out.post(o.l.raw, o.lost)
}
