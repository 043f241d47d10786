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
	flows []Flow
	idle  map[flowKey]time.Duration // of established flows, by Flow.key
	scans int
	old   bool // see SetOld
}

var _ Interface = (*Fake)(nil)

// NewFake returns a fake that tracks nothing.
func NewFake() *Fake { return &Fake{idle: map[flowKey]time.Duration{}} }

// Track adds a connection.
func (f *Fake) Track(flow Flow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !flow.Peer.IsValid() {
		flow.Peer = flow.Dst
	}
	f.flows = append(f.flows, flow)
}

// Establish makes a tracked connection an established one that is idle for that long.
func (f *Fake) Establish(flow Flow, idle time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.idle[flow.key()] = idle
}

// Established implements Interface.
func (f *Fake) Established(mark, mask uint32, each func(Established)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.scans++
	for _, flow := range f.flows {
		if idle, is := f.idle[flow.key()]; is && (Query{Mark: mark, Mask: mask}).marked(flow) {
			each(Established{flow.Protocol, flow.Src, flow.Dst, flow.Peer, idle})
		}
	}
	return nil
}

// Flows implements Interface.
func (f *Fake) Flows(q Query) ([]Flow, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	peers := byFamily(q.Peers)
	for i, sources := range byFamily(q.Sources) {
		if len(sources) > 0 && (len(q.Peers) == 0 || len(peers[i]) > 0) {
			f.scans++
		}
	}
	var out []Flow
	for _, flow := range f.flows {
		if slices.Contains(q.Sources, flow.Src.Addr()) && q.marked(flow) && (len(q.Peers) == 0 || slices.Contains(q.Peers, flow.Peer.Addr())) {
			out = append(out, flow)
		}
	}
	return out, nil
}

// Lookup implements Interface.
func (f *Fake) Lookup(proto uint8, src, dst netip.AddrPort) (Flow, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, flow := range f.flows {
		if ported(proto) && flow.Same(Flow{Protocol: proto, Src: src, Dst: dst, Zone: flow.Zone}) {
			return flow, true, nil
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
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.flows {
		if f.flows[i].Same(flow) {
			f.flows[i].Mark = f.flows[i].Mark&^mask | value&mask
		}
	}
	return nil
}

// Delete implements Interface.
func (f *Fake) Delete(flow Flow) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.flows {
		if f.flows[i].Same(flow) {
			if f.old && f.flows[i].Offloaded {
				return flow.gone("delete", syscall.EBUSY)
			}
			delete(f.idle, flow.key())
			f.flows = append(f.flows[:i], f.flows[i+1:]...)
			return nil
		}
	}
	return nil
}

// Offload moves a tracked connection to a flow table, or out of it.
func (f *Fake) Offload(flow Flow, offloaded bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.flows {
		if f.flows[i].Same(flow) {
			f.flows[i].Offloaded = offloaded
		}
	}
}

// SetOld has Delete refuse offloaded flows, as kernels before 6.4 do, or not.
func (f *Fake) SetOld(old bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.old = old
}
