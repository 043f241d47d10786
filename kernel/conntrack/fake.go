package conntrack

import (
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Fake is an Interface in memory.
type Fake struct {
	mu    sync.Mutex
	flows []tracked // left is the time since the last packet
	scans int
	old   bool // see SetOld
}

var _ Interface = (*Fake)(nil)

// NewFake returns a fake that tracks nothing.
func NewFake() *Fake { return &Fake{} }

// Track adds a connection.
func (f *Fake) Track(flow Flow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !flow.Peer.IsValid() {
		flow.Peer = flow.Dst
	}
	f.flows = append(f.flows, tracked{Flow: flow})
}

// Establish makes a tracked connection an established one that is idle for that long.
func (f *Fake) Establish(flow Flow, idle time.Duration) {
	f.change(flow, func(c *tracked) { c.established, c.left = true, idle })
}

// Established implements Interface.
func (f *Fake) Established(mark, mask uint32, each func(f *Flow, idle time.Duration)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.scans++
	for _, c := range f.flows {
		if c.established && (Query{Mark: mark, Mask: mask}).marked(c.Mark) {
			each(&c.Flow, c.left)
		}
	}
	return nil
}

// Flows implements Interface.
func (f *Fake) Flows(q Query) ([]Flow, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(q.Sources)+len(q.Peers) == 0 {
		return nil, nil
	}
	f.scans++
	var out []Flow
	for _, c := range f.flows {
		if q.marked(c.Mark) && (len(q.Sources) == 0 || slices.Contains(q.Sources, c.Src.Addr())) && (len(q.Peers) == 0 || slices.Contains(q.Peers, c.Peer.Addr())) {
			out = append(out, c.Flow)
		}
	}
	return out, nil
}

// Lookup implements Interface.
func (f *Fake) Lookup(proto uint8, src, dst netip.AddrPort) (Flow, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.flows {
		if ported(proto) && c.Same(Flow{Protocol: proto, Src: src, Dst: dst, Zone: c.Zone}) {
			return c.Flow, true, nil
		}
	}
	return Flow{}, false, nil
}

// Scans returns how often the whole table was scanned so far.
func (f *Fake) Scans() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.scans
}

// SetMark implements Interface.
func (f *Fake) SetMark(flow Flow, value, mask uint32) error {
	f.change(flow, func(c *tracked) { c.Mark = c.Mark&^mask | value&mask })
	return nil
}

// Offload moves a tracked connection to a flow table, or out of it.
func (f *Fake) Offload(flow Flow, offloaded bool) {
	f.change(flow, func(c *tracked) { c.Offloaded = offloaded })
}

func (f *Fake) change(flow Flow, change func(*tracked)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i := f.index(flow); i >= 0 {
		change(&f.flows[i])
	}
}

func (f *Fake) index(flow Flow) int {
	return slices.IndexFunc(f.flows, func(c tracked) bool { return c.Same(flow) })
}

// Delete implements Interface.
func (f *Fake) Delete(flow Flow) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := f.index(flow)
	switch {
	case i < 0:
		return nil
	case f.old && f.flows[i].Offloaded:
		return flow.gone("delete", syscall.EBUSY)
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
