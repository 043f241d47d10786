package xtables

import (
	"net/netip"

	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/policy"
)

// appendAddr, appendPort and appendNetwork write one member as entries, of the other
// family none.
func (s *peerSet) appendAddr(out []ipset.Entry, a netip.Addr) []ipset.Entry {
	if versionOf(a) != s.key.family {
		return out
	}
	return append(out, ipset.Entry{Addr: a})
}

func (s *peerSet) appendPort(out []ipset.Entry, p policy.PeerPort) []ipset.Entry {
	if versionOf(p.Addr) != s.key.family {
		return out
	}
	return append(out, ipset.Entry{Addr: p.Addr, Protocol: uint8(p.Protocol), Port: p.Port})
}

// appendNetwork writes everything as two halves: the kernel takes no whole.
func (s *peerSet) appendNetwork(out []ipset.Entry, n netip.Prefix) []ipset.Entry {
	switch {
	case versionOf(n.Addr()) != s.key.family:
		return out
	case n.Bits() == 0:
		upper := n.Addr().AsSlice()
		upper[0] = 0x80
		half, _ := netip.AddrFromSlice(upper)
		return append(out, ipset.Entry{Addr: n.Addr(), Bits: 1}, ipset.Entry{Addr: half, Bits: 1})
	case n.IsSingleIP():
		return append(out, ipset.Entry{Addr: n.Addr()})
	}
	return append(out, ipset.Entry{Addr: n.Addr(), Bits: uint8(n.Bits())})
}

// entries are the wanted entries of a set.
func (s *peerSet) entries(of *policy.PeerSet) []ipset.Entry {
	added, _ := s.difference(nil, of)
	return added
}

// difference returns the entries that one state of the set has and another has not.
func (s *peerSet) difference(old, now *policy.PeerSet) (added, removed []ipset.Entry) {
	var none policy.PeerSet
	if old == nil {
		old = &none
	}
	if now == nil {
		now = &none
	}
	switch s.key.peer.Kind {
	case policy.PeerPods:
		return compare(old.Addrs, now.Addrs, netip.Addr.Compare, s.appendAddr)
	case policy.PeerNetworks:
		return compare(old.Networks, now.Networks, netip.Prefix.Compare, s.appendNetwork)
	case policy.PeerPorts:
		return compare(old.Ports, now.Ports, policy.PeerPort.Compare, s.appendPort)
	}
	return nil, nil
}

// compare walks through two sorted lists.
func compare[T any](old, now []T, by func(a, b T) int, put func([]ipset.Entry, T) []ipset.Entry) (added, removed []ipset.Entry) {
	for len(old) > 0 || len(now) > 0 {
		var c int
		switch {
		case len(old) == 0:
			c = 1
		case len(now) == 0:
			c = -1
		default:
			c = by(old[0], now[0])
		}
		if c < 0 {
			removed = put(removed, old[0])
		}
		if c > 0 {
			added = put(added, now[0])
		}
		if c <= 0 {
			old = old[1:]
		}
		if c >= 0 {
			now = now[1:]
		}
	}
	return added, removed
}
