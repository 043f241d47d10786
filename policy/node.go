package policy

import (
	"maps"
	"net/netip"
	"slices"
)

// Node is the node as a subject: its policies judge what its own sockets send, those of pods in
// its network namespace among them. It is immutable.
type Node struct {
	Name   string
	Labels map[string]string
	// Addrs are its own addresses, sorted.
	Addrs []netip.Addr
	// Failsafes come before the rules.
	Failsafes []Failsafe
	// Unknown tells which failsafes are not known, "" for none. While there are such, policies for
	// nodes are audited alone.
	Unknown string
}

// NodeRef returns the reference of a node. No pod has it.
func NodeRef(name string) PodRef { return PodRef{Name: name} }

// NodeSubjects stand for the node in grants of its names, whatever address a packet comes from. No
// pod has them.
var NodeSubjects = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}

// exempts tells whether no rule of the node judges a flow: it stays on the node, or a failsafe has
// what is dialled or what is reached.
func (n *Node) exempts(f *Flow) bool {
	own := func(a netip.Addr) bool {
		_, is := slices.BinarySearchFunc(n.Addrs, CleanAddr(a), netip.Addr.Compare)
		return is || a.Unmap().IsLoopback()
	}
	return own(f.Dialled.Addr()) || own(f.Reached.Addr()) || n.Failsafe(f) != nil
}

// Failsafe returns the first failsafe that has what is dialled or what is reached, nil for none.
func (n *Node) Failsafe(f *Flow) *Failsafe {
	for i := range n.Failsafes {
		if s := &n.Failsafes[i]; s.Contains(f.Protocol, f.Dialled) || s.Contains(f.Protocol, f.Reached) {
			return s
		}
	}
	return nil
}

// Same tells whether two reports of a node say the same.
func (n *Node) Same(o *Node) bool {
	return n == o || n != nil && o != nil && n.Name == o.Name && n.Unknown == o.Unknown &&
		maps.Equal(n.Labels, o.Labels) && slices.Equal(n.Addrs, o.Addrs) && slices.Equal(n.Failsafes, o.Failsafes)
}
