package policy

import (
	"iter"
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
	// Interfaces are those of rules that name none: with an address of the Node's status or a default
	// route, sorted.
	Interfaces []string
	// Failsafes come before the rules.
	Failsafes []Failsafe
	// Missing tells which failsafes are not known, "" for none. While there are such, the node accepts
	// no policies.
	Missing string
}

// Traffic is the traffic that rules for the node are about.
type Traffic uint8

// The kinds of traffic.
const (
	// Local is connections of and to the sockets of the node, by their first packets.
	Local Traffic = iota
	// Forwarded is connections that the node forwards, by their first packets.
	Forwarded
	// BeforeNAT is the first packets of connections that arrive, before Services are translated.
	BeforeNAT
	// Untracked is packets of and to the node before connection tracking.
	Untracked
)

// String returns the word of the API.
func (t Traffic) String() string {
	return [...]string{"Local", "Forwarded", "BeforeNAT", "Untracked"}[t]
}

// TrafficRules are the rules for a node by traffic, each list in order. The tier Admin of a rule means
// nothing.
type TrafficRules struct{ Local, Forwarded, BeforeNAT, Untracked Directions }

// Directions are the rules for one traffic: for what arrives, and for what leaves.
type Directions struct{ Ingress, Egress []*Rule }

// Of returns the rules for one traffic.
func (r *TrafficRules) Of(t Traffic) *Directions {
	return [...]*Directions{&r.Local, &r.Forwarded, &r.BeforeNAT, &r.Untracked}[t]
}

// All yields every rule.
func (r *TrafficRules) All() iter.Seq[*Rule] {
	return func(yield func(*Rule) bool) {
		for t := Local; t <= Untracked; t++ {
			for _, rules := range [][]*Rule{r.Of(t).Ingress, r.Of(t).Egress} {
				for _, rule := range rules {
					if !yield(rule) {
						return
					}
				}
			}
		}
	}
}

// NodeRef returns the reference of a node. No pod has it.
func NodeRef(name string) PodRef { return PodRef{Name: name} }

// NodeSubjects stand for the node in grants of its names, whatever address a packet comes from. No
// pod has them.
var NodeSubjects = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}

// exempts tells whether no rule of the node judges a flow: it stays on the node, or a failsafe has
// what is dialled or what is reached.
func (v *View) exempts(f *Flow, in *Snapshot) bool {
	own := func(a netip.Addr) bool {
		_, is := slices.BinarySearchFunc(v.Node.Addrs, CleanAddr(a), netip.Addr.Compare)
		return is || a.Unmap().IsLoopback()
	}
	return own(f.Dialled.Addr()) || own(f.Reached.Addr()) || v.Failsafe(f, in) != nil
}

// Failsafe returns the first failsafe of a view of the node that has what is dialled or what is
// reached, nil for none.
func (v *View) Failsafe(f *Flow, in *Snapshot) *Failsafe {
	for i := range v.Node.Failsafes {
		s := &v.Node.Failsafes[i]
		if s.In && !s.Out {
			continue
		}
		for _, to := range []netip.AddrPort{f.Dialled, f.Reached} {
			if s.Contains(f.Protocol, to) && !(s.Yields && v.lists(to.Addr(), in, f.Would)) {
				return s
			}
		}
	}
	return nil
}

// lists tells whether a rule in force, not a broken one, has an address among its networks, pods or
// nodes. Wide networks do not count.
func (v *View) lists(a netip.Addr, in *Snapshot, would bool) bool {
	return v.anyOfCluster(func(r *Rule) bool { return (would || !r.Audit) && !r.Broken && in.PeerSet(r.Peer).lists(CleanAddr(a)) })
}

// Same tells whether two reports of a node say the same.
func (n *Node) Same(o *Node) bool {
	return n == o || n != nil && o != nil && n.Name == o.Name && n.Missing == o.Missing &&
		maps.Equal(n.Labels, o.Labels) && slices.Equal(n.Addrs, o.Addrs) && slices.Equal(n.Interfaces, o.Interfaces) &&
		slices.EqualFunc(n.Failsafes, o.Failsafes, func(a, b Failsafe) bool { return a.Same(&b) })
}
