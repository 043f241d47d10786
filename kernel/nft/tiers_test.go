package nft_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/testkit/fatal"
)

// tiered is full with ordered rules of every form.
func tiered() nft.State {
	s := full
	s.Serving, s.DNS = []netip.Addr{serve4, serve6}, []netip.Addr{dns4}
	s.Tiers = []nft.Tiers{{
		ID: "0123456789abcdef", Subjects: []netip.Addr{pod4, pod6}, Namespace: true, DNS: true,
		Admin: []*nft.TierRule{
			{Peers: "pods", Action: nft.Accept, Ports: []nft.PortRange{{Protocol: "tcp", First: 443, Last: 443}, {Protocol: "tcp", First: 8000, Last: 9000}, {Protocol: "udp", First: 0, Last: 65535}}},
			{Peers: "networks", Action: nft.Pass}, {Peers: "named", Action: nft.Drop}, {Action: nft.Reject, Ports: []nft.PortRange{{Protocol: "sctp", First: 7, Last: 7}}},
		},
	}, {ID: "fedcba9876543210", Subjects: []netip.Addr{netip.MustParseAddr("10.1.0.6")}, Baseline: []*nft.TierRule{{Peers: "networks", Action: nft.Reject}, {Action: nft.Pass}}}}
	s.Peers = []nft.PeerSet{
		{Name: "pods", Kind: nft.PeerAddrs, Addrs: []netip.Addr{netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("2001:db8:9::1")}},
		{Name: "networks", Kind: nft.PeerNetworks, Networks: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/25"), netip.MustParsePrefix("192.0.2.128/25"), netip.MustParsePrefix("2001:db8::7/128")}},
		{Name: "named", Kind: nft.PeerPorts, Ports: []nft.PeerPort{{Addr: netip.MustParseAddr("10.9.0.1"), Protocol: "tcp", Port: 80}, {Addr: netip.MustParseAddr("2001:db8:9::1"), Protocol: "sctp", Port: 9}}},
	}
	return s
}

// verified asserts what Verify finds.
func verified(t *testing.T, tables *nft.Tables, s nft.State, want ...string) {
	t.Helper()
	if found, err := tables.Verify(context.Background(), s); err != nil || !slices.Equal(found, want) {
		t.Errorf("deviations %q, %v; want %q", found, err, want)
	}
}

func TestTiersComeAndGo(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	tables, s := inKernel(t), tiered()
	fatal.If(t, errors.Join(tables.Setup(ctx), tables.Apply(ctx, full)))
	without := ruleset(t)
	verified(t, tables, full)
	fatal.If(t, tables.Apply(ctx, s))
	verified(t, tables, s)
	with := ruleset(t)
	// Members change, and a list goes for another.
	next := tiered()
	next.Peers[0].Addrs, next.Peers[1].Networks = next.Peers[0].Addrs[:1], next.Peers[1].Networks[:1]
	next.Tiers[1].ID, next.Tiers[1].Baseline = "00000000fedcba98", nil
	next.Tiers[1].Subjects = append(next.Tiers[1].Subjects, next.Tiers[0].Subjects[0])
	next.Tiers[0].Subjects = next.Tiers[0].Subjects[1:]
	next.Peers = append(next.Peers[:2:2], nft.PeerSet{Name: "more", Kind: nft.PeerNetworks}, next.Peers[2])
	fatal.If(t, tables.Apply(ctx, next))
	verified(t, tables, next)
	if got := ruleset(t); led(got, "10.1.0.5") != led(got, "10.1.0.6") || led(got, "2001:db8:1::5") == led(got, "10.1.0.5") {
		t.Errorf("after a change:\n%s", got)
	}
	fatal.If(t, tables.Apply(ctx, s))
	if diff := cmp.Diff(sortedLines(with), sortedLines(ruleset(t))); diff != "" {
		t.Errorf("after the change was taken back (-want +got):\n%s", diff)
	}
	// A later agent takes over what is there, whatever it wants.
	for _, of := range []nft.State{s, next, full} {
		later, err := nft.Open(bits)
		fatal.If(t, errors.Join(err, later.Setup(ctx), later.Apply(ctx, of)))
		verified(t, later, of)
	}
	if diff := cmp.Diff(sortedLines(without), sortedLines(ruleset(t))); diff != "" {
		t.Errorf("tiers that are gone left something (-want +got):\n%s", diff)
	}
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
	state := func(deny nft.Action) nft.State {
		pod := []netip.Addr{netip.MustParseAddr("10.1.0.5"), netip.MustParseAddr("2001:db8:1::5")}
		return nft.State{Selected: pod, Tiers: []nft.Tiers{{ID: fmt.Sprint(deny), Subjects: pod, Admin: []*nft.TierRule{{Action: nft.Accept, Ports: []nft.PortRange{{Protocol: "tcp", First: 443, Last: 443}}}, {Action: deny}}}}}
	}
	rejects, drops := state(nft.Reject), state(nft.Drop)
	fatal.If(t, errors.Join(tables.Setup(ctx), tables.Apply(ctx, rejects), tables.Apply(ctx, drops)))
	later, err := nft.Open(bits)
	fatal.If(t, errors.Join(err, later.Setup(ctx)))
	if found := later.TierChains(); len(found) != 2 || !maps.Equal(found, drops.TierChains()) || found[drops.Selected[0]] == rejects.TierChains()[drops.Selected[0]] {
		t.Errorf("chains %q, those of the rules are %q, of the rules before %q", found, drops.TierChains(), rejects.TierChains())
	}
}

// TestTiersAreRepaired: what another program does to tiers is found and repaired.
func TestTiersAreRepaired(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	tables, s := inKernel(t), tiered()
	fatal.If(t, errors.Join(tables.Setup(ctx), tables.Apply(ctx, s)))
	want := sortedLines(ruleset(t))
	rest, admin := regexp.MustCompile("rest-[0-9a-f]+").FindString(strings.Join(want, " ")), led(strings.Join(want, " "), "10.1.0.5")
	for rival, object := range map[string]string{
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
	} {
		if out, err := exec.Command("nft", rival).CombinedOutput(); err != nil {
			t.Fatalf("nft %s: %v: %s", rival, err, out)
		}
		verified(t, tables, s, object)
		fatal.If(t, tables.Rewrite(ctx, s))
		if diff := cmp.Diff(want, sortedLines(ruleset(t))); diff != "" {
			t.Errorf("after nft %s and a repair (-want +got):\n%s", rival, diff)
		}
	}
}
