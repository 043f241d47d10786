package conntrack

import (
	"net/netip"
	"slices"
	"sync"
)

// Fake is an Interface in memory.
type Fake struct {
	mu    sync.Mutex
	flows []Flow
	scans int
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
	f.flows = append(f.flows, flow)
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
		if ported(proto) && flow.same(Flow{Protocol: proto, Src: src, Dst: dst, Zone: flow.Zone}) {
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
		if f.flows[i].same(flow) {
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
		if f.flows[i].same(flow) {
			f.flows = append(f.flows[:i], f.flows[i+1:]...)
			return nil
		}
	}
	return nil
}

func (f Flow) same(o Flow) bool {
	return f.Protocol == o.Protocol && f.Src == o.Src && f.Dst == o.Dst && f.Zone == o.Zone
}
