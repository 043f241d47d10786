package policy

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// PeerKind is how a Peer selects peers.
type PeerKind uint8

// The kinds of peers.
const (
	// PeerAnywhere is every destination: a rule that names none.
	PeerAnywhere PeerKind = iota
	// PeerPods are the addresses of pods that selectors select.
	PeerPods
	// PeerNetworks are the networks of ipBlocks, without their exceptions.
	PeerNetworks
	// PeerPorts are addresses of pods, each with the port to which a name leads there.
	PeerPorts
	// PeerNames is no set of peers: the rule leads where the answers for its names say.
	PeerNames
)

// Peer names a PeerSet by its selection, not by its current members: equal peers of any
// policies are one Peer, in every snapshot and every agent. It is comparable. The zero
// value is every destination.
type Peer struct {
	Kind PeerKind
	// Key is the selection in a readable canonical text; "" for PeerAnywhere.
	Key string
}

// Compare orders peers by kind, then by key.
func (p Peer) Compare(q Peer) int {
	return cmp.Or(cmp.Compare(p.Kind, q.Kind), strings.Compare(p.Key, q.Key))
}

// PeerPort is a named port as one pod has it.
type PeerPort struct {
	Addr     netip.Addr
	Protocol Protocol
	Port     uint16
}

// Compare orders by address, protocol and port.
func (p PeerPort) Compare(q PeerPort) int {
	return cmp.Or(p.Addr.Compare(q.Addr), cmp.Compare(p.Protocol, q.Protocol), cmp.Compare(p.Port, q.Port))
}

// PeerSet is the members of a Peer in one snapshot. It is immutable. Of the three lists
// only that of its kind is filled; each is sorted and has each value once.
type PeerSet struct {
	Peer
	Addrs []netip.Addr // PeerPods
	// Networks, of PeerNetworks, are masked and disjoint, as few as they can be.
	Networks []netip.Prefix
	Ports    []PeerPort // PeerPorts
}

// Contains tells whether the actual destination belongs to the set. Protocol and port
// count for PeerPorts only.
func (s *PeerSet) Contains(a netip.Addr, proto Protocol, port uint16) bool {
	if s == nil {
		return false
	}
	switch s.Kind {
	case PeerAnywhere:
		return true
	case PeerPods:
		_, in := slices.BinarySearchFunc(s.Addrs, a, netip.Addr.Compare)
		return in
	case PeerPorts:
		_, in := slices.BinarySearchFunc(s.Ports, PeerPort{a, proto, port}, PeerPort.Compare)
		return in
	case PeerNetworks:
		return inNetworks(s.Networks, a)
	}
	return false
}

// lists tells whether the set lists an address, with any port. A wide network lists none.
func (s *PeerSet) lists(a netip.Addr) bool {
	switch {
	case s == nil:
		return false
	case s.Kind == PeerPorts:
		return slices.ContainsFunc(s.Ports, func(p PeerPort) bool { return p.Addr == a })
	case s.Kind == PeerNetworks:
		return slices.ContainsFunc(s.Networks, func(n netip.Prefix) bool { return n.Contains(a) && !Wide(n) })
	}
	return s.Contains(a, AnyProtocol, 0)
}

// Wide tells whether a network stands for every destination, such as 0.0.0.0/0, and lists no
// range by itself: it is larger than the private ranges 10.0.0.0/8 (RFC 1918) and fc00::/7
// (RFC 4193).
func Wide(n netip.Prefix) bool {
	return n.Addr().Is4() && n.Bits() < 8 || n.Addr().Is6() && n.Bits() < 7
}

// inNetworks tells whether one of networks, which are sorted and disjoint, has a.
func inNetworks(networks []netip.Prefix, a netip.Addr) bool {
	// Only the last network that does not begin after a can contain it.
	i, at := slices.BinarySearchFunc(networks, a, func(p netip.Prefix, a netip.Addr) int { return p.Addr().Compare(a) })
	return at || i > 0 && networks[i-1].Contains(a)
}
