package nft_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestLongListsOfBothTiers: long lists that lead to each other are within the kernel's bound
// of nested chains.
func TestLongListsOfBothTiers(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	tables := inKernel(t)
	tables.DecideNamespace()
	fatal.If(t, tables.Setup(ctx))
	s := longTiers(1000, 1)
	if err := errors.Join(tables.Apply(ctx, nft.State{}), tables.Apply(ctx, s)); err != nil {
		t.Fatalf("%.1000s", err)
	}
	verified(t, tables, s)
}

// longTiers are pods with n ordered rules and n rules of NetworkPolicies.
func longTiers(n, pods int) (s nft.State) {
	var admin, list []*nft.TierRule
	for i := range n {
		peers := fmt.Sprintf("%04d", i)
		s.Peers = append(s.Peers, nft.PeerSet{Name: peers, Addrs: []netip.Addr{netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)})}},
			nft.PeerSet{Name: "net" + peers, Kind: nft.PeerNetworks, Networks: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 19, byte(i >> 8), byte(i)}), 32)}})
		s.Entries = append(s.Entries, peers)
		ports := []nft.PortRange{{Protocol: "tcp", First: uint16(i + 1), Last: uint16(i + 1)}}
		admin = append(admin, &nft.TierRule{Entries: peers, Action: nft.Pass, Ports: ports}, &nft.TierRule{Peers: "net" + peers, Action: nft.Pass, Ports: ports})
		list = append(list, &nft.TierRule{Peers: peers, Ports: ports}, &nft.TierRule{Peers: "net" + peers, Ports: ports})
	}
	s.Lists = []nft.RuleList{{ID: "list", Rules: list}}
	s.Tiers = []nft.Tiers{{ID: "tiers", Admin: admin, Namespace: true}}
	for i := range pods {
		id, a := fmt.Sprintf("%012x", i), netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
		g := nft.GrantSet{Name: id, Ported: true}
		s.GrantSets = append(s.GrantSets, g)
		s.Subjects = append(s.Subjects, nft.Subject{ID: id, Addrs: []netip.Addr{a}, List: "list", Grants: []nft.Grants{{Set: g}}})
		s.Selected, s.Tiers[0].Subjects = append(s.Selected, a), append(s.Tiers[0].Subjects, a)
	}
	return s
}
