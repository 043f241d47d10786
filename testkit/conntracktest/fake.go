// Package conntracktest has connection tracking in memory.
package conntracktest

import (
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/namegate/namegate/kernel/conntrack"
)

// Fake is a conntrack.Interface in memory.
type Fake struct {
	mu    sync.Mutex
	flows []tracked
	scans int
	old   bool // see SetOld
}

// tracked is a connection, and the time since its last packet.
type tracked struct {
	conntrack.Flow
	established bool
	idle        time.Duration
}

var _ conntrack.Interface = (*Fake)(nil)

// NewFake returns a fake that tracks nothing.
func NewFake() *Fake { return &Fake{} }

// Track adds a connection.
func (f *Fake) Track(flow conntrack.Flow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !flow.Peer.IsValid() {
		flow.Peer = flow.Dst
	}
	f.flows = append(f.flows, tracked{Flow: flow})
}

// Establish makes a tracked connection an established one that is idle for that long.
func (f *Fake) Establish(flow conntrack.Flow, idle time.Duration) {
	f.change(flow, func(c *tracked) { c.established, c.idle = true, idle })
}

// Established implements conntrack.Interface.
func (f *Fake) Established(mark, mask uint32, each func(f *conntrack.Flow, idle time.Duration)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.scans++
	for _, c := range f.flows {
		if c.established && c.Mark&mask == mark&mask {
			each(&c.Flow, c.idle)
		}
	}
	return nil
}

// Flows implements conntrack.Interface.
func (f *Fake) Flows(q conntrack.Query) ([]conntrack.Flow, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(q.Sources)+len(q.Peers) == 0 {
		return nil, nil
	}
	f.scans++
	var out []conntrack.Flow
	for _, c := range f.flows {
		if c.Mark&q.Mask == q.Mark&q.Mask && (len(q.Sources) == 0 || slices.Contains(q.Sources, c.Src.Addr())) && (len(q.Peers) == 0 || slices.Contains(q.Peers, c.Peer.Addr())) {
			out = append(out, c.Flow)
		}
	}
	return out, nil
}

// ported are the protocols whose connections have ports: TCP, UDP, DCCP, SCTP and UDP-Lite.
var ported = []uint8{6, 17, 33, 132, 136}

// Lookup implements conntrack.Interface.
func (f *Fake) Lookup(proto uint8, src, dst netip.AddrPort) (conntrack.Flow, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.flows {
		if slices.Contains(ported, proto) && c.Same(conntrack.Flow{Protocol: proto, Src: src, Dst: dst, Zone: c.Zone}) {
			return c.Flow, true, nil
		}
	}
	return conntrack.Flow{}, false, nil
}

// Scans returns how often the whole table was scanned so far.
func (f *Fake) Scans() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.scans
}

// SetMark implements conntrack.Interface.
func (f *Fake) SetMark(flow conntrack.Flow, value, mask uint32) error {
	f.change(flow, func(c *tracked) { c.Mark = c.Mark&^mask | value&mask })
	return nil
}

// Offload moves a tracked connection to a flow table, or out of it.
func (f *Fake) Offload(flow conntrack.Flow, offloaded bool) {
	f.change(flow, func(c *tracked) { c.Offloaded = offloaded })
}

func (f *Fake) change(flow conntrack.Flow, change func(*tracked)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i := f.index(flow); i >= 0 {
		change(&f.flows[i])
	}
}

func (f *Fake) index(flow conntrack.Flow) int {
	return slices.IndexFunc(f.flows, func(c tracked) bool { return c.Same(flow) })
}

// Delete implements conntrack.Interface.
func (f *Fake) Delete(flow conntrack.Flow) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := f.index(flow)
	switch {
	case i < 0:
		return nil
	case f.old && f.flows[i].Offloaded:
		return syscall.EBUSY
	}
	f.flows = slices.Delete(f.flows, i, i+1)
	return nil
}

// SetOld has Delete refuse offloaded flows, as kernels before 6.4 do, or not.
func (f *Fake) SetOld(old bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.old = old
}
