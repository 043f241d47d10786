package compile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/netpol"
	"github.com/namegate/namegate/policy/api/ordered"
	"github.com/namegate/namegate/policy/peers"
)

// MaxViewPeers bounds the different pairs of a peer and ports that the NetworkPolicies
// of one pod may allow together. Each counts as netpol.Cost of its ports.
const MaxViewPeers = 4096

// egressRules are the shared rules of pods that the same NetworkPolicies select.
type egressRules struct {
	union[*parsed]
	policies []string // "namespace/name", sorted
	rules    []*policy.Rule
	cost     int        // of the different ones of them
	sets     []*liveSet // of the rules, each once
	left     []leftOut
	now, cut *egressRules // what there is room for on the node: itself, or a part
}

var (
	tooManyPeers = fmt.Sprintf("the NetworkPolicies that select it have more than %d different pairs of peers and ports together, each %d ports of one counted; ", MaxViewPeers, netpol.PortsPerUnit) + widerPeers
	crowdedNode  = fmt.Sprintf("the NetworkPolicies of the node's pods have more than %d different peers, %d rules or %d pods, ports and networks together, and this namespace more than its part; ",
		MaxPeerSets, MaxPeerRules, peers.MaxEntries) + widerPeers
)

const widerPeers = "write wider selectors or networks, or give rules the same ports"

func (c *Compiler) readNetworkPolicy(from *networkingv1.NetworkPolicy) *parsed {
	c.serial++
	return &parsed{Policy: netpol.ReadOne(from, false), serial: c.serial}
}

// newEgressRules returns the union of NetworkPolicies, which are sorted by id; of that what
// room says, which is asked for each different pair of a peer and ports. nil: all.
func (c *Compiler) newEgressRules(policies []*parsed, room func(*ordered.Rule) bool) *egressRules {
	type pair struct {
		peer  policy.Peer
		ports policy.PortSet
	}
	r := &egressRules{}
	pairs := map[pair]bool{}
	has := map[policy.Peer]bool{}
	for _, n := range policies {
		r.policies = append(r.policies, n.ID)
		left, crowded := leftOut{kind: kindNetworkPolicy, id: n.ID, why: tooManyPeers}, leftOut{kind: kindNetworkPolicy, id: n.ID, why: crowdedNode}
		for i := range n.Rules {
			rule := &n.Rules[i]
			at := pair{rule.Peer, rule.Ports}
			switch {
			case pairs[at]:
			case r.cost+rule.Cost > MaxViewPeers:
				left.add(rule.Path)
				continue
			case room != nil && !room(rule):
				crowded.add(rule.Path)
				continue
			default:
				pairs[at], r.cost = true, r.cost+rule.Cost
			}
			r.rules = append(r.rules, rule.Rule)
			if rule.Peer.Kind != policy.PeerAnywhere && !has[rule.Peer] {
				has[rule.Peer] = true
				r.sets = append(r.sets, c.liveSet(rule.Spec))
			}
		}
		for _, l := range []leftOut{left, crowded} {
			if l.rules > 0 {
				r.left = append(r.left, l)
			}
		}
	}
	slices.SortStableFunc(r.rules, func(a, b *policy.Rule) int {
		return cmp.Or(a.Peer.Compare(b.Peer), strings.Compare(string(a.Ports), string(b.Ports)))
	})
	return r
}
