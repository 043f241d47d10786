package compile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/netpol"
	"github.com/namegate/namegate/policy/peers"
)

// MaxViewPeers bounds the different pairs of a peer and ports that the NetworkPolicies
// of one pod may allow together. Each counts as netpol.Cost of its ports.
const MaxViewPeers = 4096

// egressRules are the shared rules of pods that the same NetworkPolicies select.
type egressRules struct {
	union[*netPolicy]
	policies []string // "namespace/name", sorted
	rules    []*policy.Rule
	cost     int        // of the different ones of them
	sets     []*liveSet // of the rules, each once
	left     []leftPeers
	now, cut *egressRules // what there is room for on the node: itself, or a part
}

// leftPeers is the rules of one NetworkPolicy for which there is no room in a view.
type leftPeers struct {
	id          string
	first, last string // their paths
	rules       int
	node        bool // the node has no room, and not the view
}

// add counts a rule once, whose peers of several kinds come one after the other.
func (l *leftPeers) add(path string) {
	if l.rules == 0 {
		l.first = path
	}
	if l.last != path {
		l.last = path
		l.rules++
	}
}

// netPolicy is one NetworkPolicy as it was read. It is immutable.
type netPolicy struct {
	*netpol.Policy
	serial uint64 // of the parse in its compiler
}

func (n *netPolicy) id() string     { return n.ID }
func (n *netPolicy) number() uint64 { return n.serial }

func (c *Compiler) readNetworkPolicy(from *networkingv1.NetworkPolicy) *netPolicy {
	c.serial++
	return &netPolicy{netpol.Read(from), c.serial}
}

// unlimitedEgress returns the union of NetworkPolicies, whatever room there is on the node.
func (c *Compiler) unlimitedEgress(policies []*netPolicy) *egressRules {
	return c.newEgressRules(policies, nil)
}

// newEgressRules returns the union of NetworkPolicies, which are sorted by id; of that what
// room says, which is asked for each different pair of a peer and ports. nil: all.
func (c *Compiler) newEgressRules(policies []*netPolicy, room func(*netpol.Rule) bool) *egressRules {
	type pair struct {
		peer  policy.Peer
		ports policy.PortSet
	}
	r := &egressRules{}
	pairs := map[pair]bool{}
	has := map[policy.Peer]bool{}
	for _, n := range policies {
		r.policies = append(r.policies, n.ID)
		left, crowded := leftPeers{id: n.ID}, leftPeers{id: n.ID, node: true}
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
		for _, l := range []leftPeers{left, crowded} {
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

// reportLeftPeers reports the rules beyond the bound, each NetworkPolicy for the first of
// the pods alone.
func (s *draft) reportLeftPeers(p *policy.Pod, r *egressRules, reported map[[2]string]bool) {
	if r == nil {
		return
	}
	for _, l := range r.left {
		key := [2]string{"networkpolicy " + l.id, l.first}
		if reported[key] {
			continue
		}
		reported[key] = true
		rules := "this rule opens not all that it says"
		if l.rules > 1 {
			rules = fmt.Sprintf("this rule and %d more of the NetworkPolicy open not all that they say", l.rules-1)
		}
		why := fmt.Sprintf("the NetworkPolicies that select it have more than %d different pairs of peers and ports together, each %d ports of one counted", MaxViewPeers, netpol.PortsPerUnit)
		if l.node {
			why = fmt.Sprintf("the NetworkPolicies of the node's pods have more than %d different peers, %d rules or %d pods, ports and networks together, and this namespace more than its part",
				MaxPeerSets, MaxPeerRules, peers.MaxEntries)
		}
		s.Problems = append(s.Problems, policy.Problem{
			Object: key[0], Reason: policy.ReasonPartiallyInvalid, Path: l.first,
			Message: fmt.Sprintf("%s for pod %s: %s; write wider selectors or networks, or give rules the same ports", rules, p, why),
		})
	}
}
