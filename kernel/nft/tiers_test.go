package nft_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"strings"
	"testing"

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
		pod := []netip.Addr{pod4, pod6}
		return nft.State{Selected: pod, Tiers: []nft.Tiers{{ID: fmt.Sprint(deny), Subjects: pod, Admin: []*nft.TierRule{{Action: nft.Accept, Ports: []nft.PortRange{{Protocol: "tcp", First: 443, Last: 443}}}, {Action: deny}}}}}
	}
	rejects, drops := state(nft.Reject), state(nft.Drop)
	fatal.If(t, errors.Join(tables.Setup(ctx), tables.Apply(ctx, rejects), tables.Apply(ctx, drops)))
	later := laterAgent(t)
	fatal.If(t, later.Setup(ctx))
	if found := later.TierChains(); len(found) != 2 || !maps.Equal(found, drops.TierChains()) || found[drops.Selected[0]] == rejects.TierChains()[drops.Selected[0]] {
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
