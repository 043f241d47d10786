package xtables

import (
	"net/netip"
	"testing"

	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/policy"
)

// A half of everything is also a network by itself: it is not taken out with the whole.
func TestHalvesOfAFullRangeStay(t *testing.T) {
	peer := policy.Peer{Kind: policy.PeerNetworks, Key: "k"}
	of := func(all ...string) *policy.PeerSet {
		s := &policy.PeerSet{Peer: peer}
		for _, p := range all {
			s.Networks = append(s.Networks, netip.MustParsePrefix(p))
		}
		return s
	}
	half := ipset.Entry{Addr: addr("0.0.0.0"), Bits: 1}
	for _, step := range [][2]*policy.PeerSet{{of("0.0.0.0/0"), of("0.0.0.0/1")}, {of("0.0.0.0/1"), of("0.0.0.0/0")}} {
		s := &peerSet{key: peerKey{peer, 4}, stale: map[ipset.Entry]bool{}}
		for _, now := range step {
			added, removed := s.difference(s.full, now)
			s.filled(now, added, removed)
		}
		if s.stale[half] || s.size != len(s.entries(s.full)) {
			t.Errorf("from %v to %v: beyond %v, size %d", step[0].Networks, step[1].Networks, s.stale, s.size)
		}
	}
}
