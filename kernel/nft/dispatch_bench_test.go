package nft_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/testkit/fatal"
)

// longLists are 1,000 rules in runs of ten, most of them about names, in 25 lists that have
// most of them; change makes another rule of one of those in all lists.
func longLists(change int) (s nft.State) {
	var rules []*nft.TierRule
	for i := range 1000 {
		r := &nft.TierRule{Key: uint64(i+1) * 0x9e3779b97f4a7c15, Action: nft.Reject}
		of := fmt.Sprintf("%04d", i)
		if i == 405 {
			of += fmt.Sprint("-", change)
		}
		switch i / 10 % 10 {
		case 1, 8:
			r.Action, r.Ports = nft.Accept, []nft.PortRange{{Protocol: "tcp", First: 443, Last: 443}}
		case 5:
			r.Action = nft.Pass
		case 7:
			r.Action, r.Ports, r.Peers = nft.Accept, []nft.PortRange{{Protocol: "tcp", First: 443, Last: 443}}, of
		case 3, 9:
			r.Peers = of
		}
		if r.Peers == "" {
			r.Entries = of
			s.Entries = append(s.Entries, nft.EntrySet{Name: of})
		} else {
			s.Peers = append(s.Peers, nft.PeerSet{Name: of, Kind: nft.PeerNetworks, Networks: []netip.Prefix{
				netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, byte(i >> 4), byte(i << 4)}), 28),
				netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, byte(i >> 8), byte(i)}), 48),
			}})
		}
		rules = append(rules, r)
	}
	for l := range 25 {
		own := slices.DeleteFunc(slices.Clone(rules), func(r *nft.TierRule) bool {
			i := 0
			_, _ = fmt.Sscanf(r.Peers+r.Entries, "%04d", &i)
			return i/10%20 == 1 && i/200 != l%5 || i/10%20 == 12 && i/200 != l/5
		})
		s.Tiers = append(s.Tiers, nft.Tiers{ID: fmt.Sprintf("%d-%d", l, change), Admin: own, Namespace: true})
		for i := range 10 {
			a := netip.AddrFrom4([4]byte{10, 1, byte(l), byte(i)})
			s.Selected, s.Tiers[l].Subjects = append(s.Selected, a), append(s.Tiers[l].Subjects, a)
		}
	}
	return s
}

// BenchmarkApplyLongLists is the cost of a changed rule of 25 lists of some 900, and beside
// them of a changed element.
func BenchmarkApplyLongLists(b *testing.B) {
	ctx := context.Background()
	for name, other := range map[string]func() nft.State{"rule": func() nft.State { return longLists(1) }, "element": func() nft.State {
		s := longLists(0)
		s.Known = append(s.Known, pod4)
		return s
	}} {
		b.Run(name, func(b *testing.B) {
			tables := inKernel(b)
			states := []nft.State{longLists(0), other()}
			fatal.If(b, errors.Join(tables.Setup(ctx), tables.Apply(ctx, states[0])))
			for i := 1; b.Loop(); i++ {
				fatal.If(b, tables.Apply(ctx, states[i%2]))
			}
		})
	}
}
