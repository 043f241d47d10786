package denial

import (
	"net/netip"
	"slices"
	"time"

	"github.com/namegate/namegate/kernel/nflog"
	"github.com/namegate/namegate/policy"
)

// maxLookups bounds how often is looked for where a connection was led, one look after
// another: the kernel knows it when its first packet has left.
const maxLookups = 4

// pending is an audited packet that waits to be judged.
type pending struct {
	nflog.Packet
	// reached is the actual destination, or the dialled one until that is known.
	reached netip.AddrPort
	looks   int // for that
	// again judges a packet that the kernel denied, nil of an audited one.
	again func(*policy.Snapshot)
}

// due takes the packets that arrived before a time out of the waiting ones.
func (d *Denials) due(until time.Time) []pending {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for n < len(d.waiting) && !d.waiting[n].Time.After(until) {
		n++
	}
	due := slices.Clone(d.waiting[:n])
	d.waiting = slices.Delete(d.waiting, 0, n)
	return due
}

// lookUp looks up the actual destinations of connections, if they can matter, and returns apart
// the packets whose destination is still unknown.
func (d *Denials) lookUp(snap *policy.Snapshot, due []pending, most int) (known, missing []pending) {
	for _, p := range due {
		p.reached = p.Destination
		if p.again == nil && d.o.Reached != nil && p.SourcePort != 0 && d.matters(snap, p.Packet) {
			at, found := d.o.Reached(p.Protocol, netip.AddrPortFrom(p.Source, p.SourcePort), p.Destination)
			if found {
				p.reached = at
			} else if p.looks++; p.looks < most {
				missing = append(missing, p)
				continue
			}
		}
		known = append(known, p)
	}
	return known, missing
}

// matters tells whether the actual destination can change the verdict of a packet: rules of
// the Namespace tier can only allow it.
func (d *Denials) matters(snap *policy.Snapshot, p nflog.Packet) bool {
	v := viewOf(snap, p)
	if v != nil && v.Ordered() {
		return true
	}
	verdict, _ := d.evaluate(snap, v, p, netip.AddrPort{}, true)
	return verdict == policy.DenyFlow
}
