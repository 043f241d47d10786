package enforcer_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/policy"
)

// ruleCase is one rule of a matrix, and how the names of its peers came to their addresses.
type ruleCase struct {
	tier    policy.Tier
	action  policy.Action
	drop    bool
	peer    policy.PeerKind
	ports   policy.PortSet
	learned string // of names: fresh, before, shared
}

func (c ruleCase) String() string {
	return fmt.Sprintf("%s %s (drop %v) of peers %d on %s, %s", c.tier, c.action, c.drop, c.peer, c.ports, c.learned)
}

// want is the outcome of a connection to the rule's peer on TCP port 80: where the rule does
// not match, and denies nothing else, a rule that denies everything else decides.
func (c ruleCase) want() lab.Outcome {
	switch hits := c.ports != "tcp/81"; {
	case hits && c.action == policy.Deny && c.drop:
		return lab.Silent
	case hits && c.action == policy.Deny:
		return lab.Refused
	case hits || c.action == policy.Deny:
		return lab.Answered
	}
	return lab.Refused
}

// ruleCases are the cases of the matrix.
func ruleCases() (out []ruleCase) {
	for _, tier := range []policy.Tier{policy.Admin, policy.Baseline} {
		for _, ports := range []policy.PortSet{policy.AnyPort, "tcp/80", "tcp/81"} {
			for _, peer := range []policy.PeerKind{policy.PeerNames, policy.PeerNetworks, policy.PeerPods, policy.PeerAnywhere} {
				for _, learned := range []string{"fresh", "before", "shared"} {
					if peer != policy.PeerNames && learned != "shared" {
						continue // the address has a name that another rule accepts
					}
					out = append(out, ruleCase{tier, policy.Accept, false, peer, ports, learned}, ruleCase{tier, policy.Pass, false, peer, ports, learned},
						ruleCase{tier, policy.Deny, false, peer, ports, learned}, ruleCase{tier, policy.Deny, true, peer, ports, learned})
				}
			}
		}
	}
	return out
}

// TestOrderedMatrix: every action of either tier decides for every kind of peer and ports,
// for an address that was learned under the rule, before it, and under a name that a later
// rule accepts as well.
func TestOrderedMatrix(t *testing.T) {
	t.Parallel()
	eachPeering(t, func(t *testing.T, p *peering) {
		db := p.Pod("db")
		outside := []netip.Addr{netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("2001:db8:1::1")}
		networks, pods := policy.Peer{Kind: policy.PeerNetworks, Key: "networks"}, policy.Peer{Kind: policy.PeerPods, Key: "pods"}
		p.peerSets = []*policy.PeerSet{{Peer: networks, Networks: []netip.Prefix{netip.PrefixFrom(outside[0], 32), netip.PrefixFrom(outside[1], 128)}}, {Peer: pods, Addrs: []netip.Addr{db.Addr4, db.Addr6}}}
		p.labels["client"] = "client"
		for _, c := range ruleCases() {
			to := outside
			rule := &policy.Rule{Tier: c.tier, Action: c.action, Ports: c.ports, Policy: "cluster"}
			switch c.peer {
			case policy.PeerNames:
				rule = byName(c.tier, c.action, c.ports, "rule", "rule.test")
			case policy.PeerNetworks:
				rule.Peer = networks
			case policy.PeerPods:
				rule.Peer, to = pods, []netip.Addr{db.Addr4, db.Addr6}
			}
			if rule.Denied = policy.Reject; c.drop {
				rule.Denied = policy.Drop
			}
			rules := []*policy.Rule{rule}
			if c.action == policy.Deny {
				rules = append(rules, byName(c.tier, policy.Accept, policy.AnyPort, "later", "shared.test"))
			} else {
				rules = append(rules, &policy.Rule{Tier: c.tier, Action: policy.Deny, Ports: policy.AnyPort, Policy: "cluster"})
			}
			p.ordered = map[string][]*policy.Rule{"client": {byName(c.tier, policy.Accept, policy.AnyPort, "first", "*.test")}}
			p.apply()
			switch c.learned {
			case "before":
				p.answer("client", "rule.test", to...)
			case "shared":
				p.answer("client", "shared.test", to...)
			}
			p.ordered["client"] = rules
			p.apply()
			if c.peer == policy.PeerNames && c.learned != "before" {
				p.answer("client", "rule.test", to...)
			}
			for _, a := range to {
				want := c.want()
				if got := p.Pod("client").ProbeFor("tcp", netip.AddrPortFrom(a, 80), lab.PatienceFor(want)); got != want {
					t.Errorf("%s: to %s: %s, want %s", c, a, got, want)
				}
			}
		}
	})
}
