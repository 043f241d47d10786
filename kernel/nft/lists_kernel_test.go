package nft_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"testing"

	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestRulesThatChange: whatever lists of shared rules become, by rules that change,
// come, go and trade places, within a list and between lists and tiers, the tables hold the rules
// in order and no other chain. Another program removes rules of parts meanwhile.
func TestRulesThatChange(t *testing.T) {
	t.Parallel()
	ctx, tables, rnd := context.Background(), inKernel(t), rand.New(rand.NewPCG(1, 1))
	var peers []nft.PeerSet
	for i := range 12 {
		peers = append(peers, nft.PeerSet{Name: fmt.Sprint(i), Addrs: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})}})
	}
	rule := func() *nft.TierRule {
		port := uint16(rnd.IntN(6))
		return &nft.TierRule{Peers: peers[rnd.IntN(len(peers))].Name, Action: nft.Action(rnd.IntN(4)), Ports: []nft.PortRange{{Protocol: "tcp", First: port, Last: port}}}
	}
	lists := make([][]*nft.TierRule, 6) // of three subjects, Admin and Baseline
	for range 40 {
		r := rule()
		for i := range lists {
			lists[i] = append(lists[i], r)
		}
	}
	fatal.If(t, errors.Join(tables.Setup(ctx), tables.Apply(ctx, nft.State{})))
	parts, flushed := regexp.MustCompile(`chain (part-\w+)`), ""
	for step := range 24 {
		for range 1 + rnd.IntN(3) {
			i, j := rnd.IntN(len(lists)), rnd.IntN(len(lists))
			a, b := rnd.IntN(len(lists[i])), rnd.IntN(len(lists[j]))
			switch rnd.IntN(4) {
			case 0:
				old, next := lists[i][a], rule()
				for l := range lists {
					if n := slices.Index(lists[l], old); n >= 0 {
						lists[l][n] = next
					}
				}
			case 1:
				lists[i][a], lists[j][b] = lists[j][b], lists[i][a]
			case 2:
				lists[i] = slices.Insert(lists[i], a, lists[j][b])
			default:
				lists[i] = slices.Delete(lists[i], a, a+1+rnd.IntN(min(3, len(lists[i])-a)))
			}
		}
		s := nft.State{Peers: peers}
		for i := 0; i < len(lists); i += 2 {
			a := netip.AddrFrom4([4]byte{10, 1, 0, byte(i)})
			s.Selected = append(s.Selected, a)
			s.Tiers = append(s.Tiers, nft.Tiers{ID: fmt.Sprint(step, i), Subjects: []netip.Addr{a}, Admin: slices.Clone(lists[i]), Baseline: slices.Clone(lists[i+1])})
		}
		s.Peers = slices.DeleteFunc(slices.Clone(peers), func(p nft.PeerSet) bool {
			return !slices.ContainsFunc(lists, func(l []*nft.TierRule) bool {
				return slices.ContainsFunc(l, func(r *nft.TierRule) bool { return r.Peers == p.Name })
			})
		})
		if err := tables.Apply(ctx, s); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		// A part without rules is written whole, or not at all.
		found, err := tables.Verify(ctx, s)
		if err != nil || len(found) > 0 && !slices.Equal(found, []string{flushed}) {
			t.Fatalf("step %d: deviations %q, %v", step, found, err)
		}
		if len(found) > 0 {
			fatal.If(t, tables.Rewrite(ctx, s))
			verified(t, tables, s)
		}
		if flushed = ""; step%4 > 0 {
			continue
		}
		there := parts.FindAllStringSubmatch(ruleset(t), -1)
		if len(there) == 0 {
			t.Fatalf("step %d: there is no part", step)
		}
		part := there[rnd.IntN(len(there))][1]
		flushed = "nft chain inet " + nft.TableName + " " + part
		fatal.If(t, exec.Command("nft", "flush", "chain", "inet", nft.TableName, part).Run())
	}
}
