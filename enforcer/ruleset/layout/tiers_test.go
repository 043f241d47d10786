package layout_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
)

// tiered is full with ordered rules of every form.
func tiered() layout.State {
	s := full
	s.Serving, s.DNS = []netip.Addr{serve4, serve6}, []netip.Addr{dns4}
	s.Tiers = []layout.Tiers{{
		ID: "0123456789abcdef", Subjects: []netip.Addr{pod4, pod6}, Namespace: true, DNS: true,
		Admin: []*layout.TierRule{
			{Peers: "pods", Action: layout.Accept, Ports: []policy.PortRange{{Protocol: policy.TCP, First: 443, Last: 443}, {Protocol: policy.TCP, First: 8000, Last: 9000}, {Protocol: policy.UDP, First: 0, Last: 65535}}},
			{Peers: "networks", Action: layout.Pass}, {Peers: "named", Action: layout.Drop}, {Action: layout.Reject, Ports: []policy.PortRange{{Protocol: policy.SCTP, First: 7, Last: 7}}},
		},
	}, {ID: "fedcba9876543210", Subjects: []netip.Addr{netip.MustParseAddr("10.1.0.6")}, Baseline: []*layout.TierRule{{Peers: "networks", Action: layout.Reject}, {Action: layout.Pass}}}}
	s.Peers = []layout.PeerSet{
		{Name: "pods", Kind: policy.PeerPods, Addrs: []netip.Addr{netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("2001:db8:9::1")}},
		{Name: "networks", Kind: policy.PeerNetworks, Networks: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/25"), netip.MustParsePrefix("192.0.2.128/25"), netip.MustParsePrefix("2001:db8::7/128")}},
		{Name: "named", Kind: policy.PeerPorts, Ports: []policy.PeerPort{{Addr: netip.MustParseAddr("10.9.0.1"), Protocol: policy.TCP, Port: 80}, {Addr: netip.MustParseAddr("2001:db8:9::1"), Protocol: policy.SCTP, Port: 9}}},
	}
	return s
}

// led is the chain to which a subject is led.
func led(rules, subject string) string {
	_, after, _ := strings.Cut(rules, subject+" : goto ")
	return regexp.MustCompile("^[a-z0-9-]*").FindString(after)
}

// TestALaterAgentKnowsChangedRules: where a rule is another one, a later agent knows that other
// rules were in force.
func TestALaterAgentKnowsChangedRules(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	tables := inKernel(t)
	state := func(deny layout.Action) layout.State {
		pod := []netip.Addr{pod4, pod6}
		return layout.State{Selected: pod, Tiers: []layout.Tiers{{ID: fmt.Sprint(deny), Subjects: pod, Admin: []*layout.TierRule{{Action: layout.Accept, Ports: []policy.PortRange{{Protocol: policy.TCP, First: 443, Last: 443}}}, {Action: deny}}}}}
	}
	rejects, drops := state(layout.Reject), state(layout.Drop)
	fatal.If(t, errors.Join(tables.Setup(ctx), tables.Apply(ctx, rejects), tables.Apply(ctx, drops)))
	later := laterAgent(t)
	earlier, err := later.ReadEarlier(ctx)
	fatal.If(t, err)
	if found := earlier.TierChains; len(found) != 2 || !maps.Equal(found, drops.TierChains()) || found[drops.Selected[0]] == rejects.TierChains()[drops.Selected[0]] {
		t.Errorf("chains %q, those of the rules are %q, of the rules before %q", found, drops.TierChains(), rejects.TierChains())
	}
}

// TestTiersAreRepaired: what another program does to tiers is found and repaired.
func TestTiersAreRepaired(t *testing.T) {
	t.Parallel()
	s := tiered()
	tables := written(t, s)
	rules := ruleset(t)
	rest, admin := regexp.MustCompile("rest-[0-9a-f]+").FindString(rules), led(rules, "10.1.0.5")
	repaired(t, tables, s, tables.Rewrite, map[string]string{
		"flush chain inet namegate " + admin:                                 "nft chain inet namegate " + admin,
		"insert rule inet namegate " + rest + " accept":                      "nft chain inet namegate " + rest,
		"flush map inet namegate tiers4":                                     "nft set inet namegate tiers4",
		"delete element inet namegate tiers6 { 2001:db8:1::5 }":              "nft set inet namegate tiers6",
		"flush set inet namegate peers-networks-4":                           "nft set inet namegate peers-networks-4",
		"add element inet namegate peers-named-4 { 10.9.0.1 . udp . 80 }":    "nft set inet namegate peers-named-4",
		"add chain inet namegate admin-ffffffffffffffff":                     "nft chain inet namegate admin-ffffffffffffffff",
		"add set inet namegate peers-other-4 { type ipv4_addr; }":            "nft set inet namegate peers-other-4",
		"delete element inet namegate peers-pods-6 { 2001:db8:9::1 }":        "nft set inet namegate peers-pods-6",
		"delete element inet namegate dns4 { 192.0.2.53 }":                   "nft set inet namegate dns4",
		"add element inet namegate tiers4 { 10.1.0.99 : goto " + rest + " }": "nft set inet namegate tiers4",
	})
}

// TestLongListsOfBothTiers: long lists that lead to each other are within the kernel's bound
// of nested chains.
func TestLongListsOfBothTiers(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	tables := inKernel(t)
	tables.decideNamespace()
	fatal.If(t, tables.Setup(ctx))
	s := longTiers(1000, 1)
	if err := errors.Join(tables.Apply(ctx, layout.State{}), tables.Apply(ctx, s)); err != nil {
		t.Fatalf("%.1000s", err)
	}
	verified(t, tables, s)
}

// longTiers are pods with n ordered rules and n rules of NetworkPolicies.
func longTiers(n, pods int) (s layout.State) {
	var admin, list []*layout.TierRule
	for i := range n {
		peers := fmt.Sprintf("%04d", i)
		s.Peers = append(s.Peers, layout.PeerSet{Name: peers, Addrs: []netip.Addr{netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)})}},
			layout.PeerSet{Name: "net" + peers, Kind: policy.PeerNetworks, Networks: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 19, byte(i >> 8), byte(i)}), 32)}})
		s.Entries = append(s.Entries, peers)
		ports := []policy.PortRange{{Protocol: policy.TCP, First: uint16(i + 1), Last: uint16(i + 1)}}
		admin = append(admin, &layout.TierRule{Entries: peers, Action: layout.Pass, Ports: ports}, &layout.TierRule{Peers: "net" + peers, Action: layout.Pass, Ports: ports})
		list = append(list, &layout.TierRule{Peers: peers, Ports: ports}, &layout.TierRule{Peers: "net" + peers, Ports: ports})
	}
	s.Lists = []layout.RuleList{{ID: "list", Rules: list}}
	s.Tiers = []layout.Tiers{{ID: "tiers", Admin: admin, Namespace: true}}
	for i := range pods {
		id, a := fmt.Sprintf("%012x", i), netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
		g := layout.GrantSet{Name: id, Ported: true}
		s.GrantSets = append(s.GrantSets, g)
		s.Subjects = append(s.Subjects, layout.Subject{ID: id, Addrs: []netip.Addr{a}, List: "list", Grants: []layout.GrantSet{g}})
		s.Selected, s.Tiers[0].Subjects = append(s.Selected, a), append(s.Tiers[0].Subjects, a)
	}
	return s
}

// TestRulesThatChange: whatever lists of shared rules become, by rules that change,
// come, go and trade places, within a list and between lists and tiers, the tables hold the rules
// in order and no other chain. Another program removes rules of parts meanwhile.
func TestRulesThatChange(t *testing.T) {
	t.Parallel()
	ctx, tables, rnd := context.Background(), inKernel(t), rand.New(rand.NewPCG(1, 1))
	var peers []layout.PeerSet
	for i := range 12 {
		peers = append(peers, layout.PeerSet{Name: fmt.Sprint(i), Addrs: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})}})
	}
	rule := func() *layout.TierRule {
		port := uint16(rnd.IntN(6))
		return &layout.TierRule{Peers: peers[rnd.IntN(len(peers))].Name, Action: layout.Action(rnd.IntN(4)), Ports: []policy.PortRange{{Protocol: policy.TCP, First: port, Last: port}}}
	}
	lists := make([][]*layout.TierRule, 6) // of three subjects, Admin and Baseline
	for range 40 {
		r := rule()
		for i := range lists {
			lists[i] = append(lists[i], r)
		}
	}
	fatal.If(t, errors.Join(tables.Setup(ctx), tables.Apply(ctx, layout.State{})))
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
		s := layout.State{Peers: peers}
		for i := 0; i < len(lists); i += 2 {
			a := netip.AddrFrom4([4]byte{10, 1, 0, byte(i)})
			s.Selected = append(s.Selected, a)
			s.Tiers = append(s.Tiers, layout.Tiers{ID: fmt.Sprint(step, i), Subjects: []netip.Addr{a}, Admin: slices.Clone(lists[i]), Baseline: slices.Clone(lists[i+1])})
		}
		s.Peers = slices.DeleteFunc(slices.Clone(peers), func(p layout.PeerSet) bool {
			return !slices.ContainsFunc(lists, func(l []*layout.TierRule) bool {
				return slices.ContainsFunc(l, func(r *layout.TierRule) bool { return r.Peers == p.Name })
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
		flushed = "nft chain inet " + layout.TableName + " " + part
		fatal.If(t, exec.Command("nft", "flush", "chain", "inet", layout.TableName, part).Run())
	}
}

// networks returns random disjoint networks of both families, which often lie side by side, at
// the ends of all addresses, or are all of them.
func networks(random *rand.Rand) (out []netip.Prefix) {
	for _, bytes := range []int{4, 16} {
		if random.IntN(10) == 0 {
			out = append(out, netip.PrefixFrom(netip.MustParsePrefix(map[int]string{4: "0.0.0.0/0", 16: "::/0"}[bytes]).Addr(), 0))
			continue
		}
		for range random.IntN(12) {
			b := make([]byte, bytes)
			b[0] = []byte{0, 198, 255}[random.IntN(3)]
			for i := 1; i < bytes; i++ {
				b[i] = b[0] / 255 * 255
			}
			b[bytes-1] = byte(random.IntN(256))
			a, _ := netip.AddrFromSlice(b)
			n := netip.PrefixFrom(a, []int{8, 8*bytes - 4, 8*bytes - 1, 8 * bytes}[random.IntN(4)]).Masked()
			overlaps := false
			for _, o := range out {
				overlaps = overlaps || o.Overlaps(n)
			}
			if !overlaps {
				out = append(out, n)
			}
		}
	}
	return out
}

// TestNetworksByChanges: sets of networks that came to their members by changes, and by the
// program nft between them, hold these members.
func TestNetworksByChanges(t *testing.T) {
	t.Parallel()
	ctx, random := context.Background(), rand.New(rand.NewPCG(1, 2))
	tables := inKernel(t)
	fatal.If(t, tables.Setup(ctx))
	for n := range 300 {
		s := layout.State{Selected: []netip.Addr{pod4}, PodRanges: networks(random)}
		var rules []*layout.TierRule
		for i := range 2 {
			name := fmt.Sprint("set", i)
			s.Peers = append(s.Peers, layout.PeerSet{Name: name, Kind: policy.PeerNetworks, Networks: networks(random)})
			rules = append(rules, &layout.TierRule{Peers: name})
		}
		s.Tiers = []layout.Tiers{{ID: "list", Subjects: s.Selected, Admin: rules}}
		write := tables.Apply
		if random.IntN(20) == 0 {
			write = tables.Rewrite
		}
		fatal.If(t, write(ctx, s))
		if verified(t, tables, s); t.Failed() {
			t.Fatalf("state %d of 300", n)
		}
	}
}
