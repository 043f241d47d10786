package compile

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/netpol"
	"github.com/namegate/namegate/policy/api/ordered"
	"github.com/namegate/namegate/policy/peers"
)

// MaxViewPeers bounds the different pairs of a peer and ports that the NetworkPolicies
// of one pod may allow together in one direction. Each counts as netpol.Cost of its ports.
const MaxViewPeers = 4096

// netPolicies are the NetworkPolicies as they are read for one direction, and what is made of those that
// select a pod.
type netPolicies struct {
	objects[*networkingv1.NetworkPolicy, *parsed]
	selections[*parsed, *netRules]
}

// netRules are the shared rules for one direction of pods that the same NetworkPolicies select.
type netRules struct {
	union[*parsed]
	policies []string // "namespace/name", sorted
	rules    []*policy.Rule
	names    []policy.NamedPort // of the subject, that rules for ingress ask for
	cost     int                // of the different ones of them
	sets     []*liveSet         // of the rules, each once
	left     []leftOut
	now, cut *netRules // what there is room for on the node: itself, or a part
}

// netSelection is the NetworkPolicies that select a pod for one direction.
type netSelection struct {
	rules *netRules // nil for none
	// at is the last compile that found them out, 0 if none did under the pod's labels.
	at uint64
}

// inForce returns what there is room for on the node, nil for none.
func (s *netSelection) inForce() *netRules {
	if s.rules == nil {
		return nil
	}
	return s.rules.now
}

// newNetPolicies returns those of a direction.
func (c *Compiler) newNetPolicies(ingress bool) netPolicies {
	return netPolicies{
		objects: objects[*networkingv1.NetworkPolicy, *parsed]{
			same: func(a, b *networkingv1.NetworkPolicy) bool { return netpol.Same(a, b, ingress) },
			read: func(from *networkingv1.NetworkPolicy) *parsed {
				c.serial++
				return &parsed{Policy: netpol.ReadOne(from, ingress), serial: c.serial}
			},
			counts: func(n *parsed) bool { return n.Pods != nil },
			known:  map[policyKey]*object[*networkingv1.NetworkPolicy, *parsed]{}, spaces: map[string]*space[*parsed]{},
		},
		selections: selections[*parsed, *netRules]{make: func(policies []*parsed) *netRules { return c.newNetRules(policies, nil) }, unions: map[string]*netRules{}},
	}
}

// find finds out which NetworkPolicies select a pod, none where they do not count for it.
func (n *netPolicies) find(number uint64, p *policy.Pod, sel *netSelection, count bool) {
	if !count {
		sel.rules = nil
		return
	}
	known := sel.at == number-1
	sel.at = number
	sel.rules = n.of(number, n.spaces[p.Namespace], sel.rules, known, func(m *parsed) bool { return m.Pods.Matches(p.Labels) })
}

// netRules yields the rules of all pods, those for ingress last.
func (c *Compiler) netRules() iter.Seq[*netRules] {
	return func(yield func(*netRules) bool) {
		for _, n := range []*netPolicies{&c.egress, &c.ingress} {
			for _, r := range n.unions {
				if !yield(r) {
					return
				}
			}
		}
	}
}

var (
	tooManyPeers = fmt.Sprintf("the NetworkPolicies that select it have more than %d different pairs of peers and ports together, each %d ports of one counted; ", MaxViewPeers, netpol.PortsPerUnit) + widerPeers
	crowdedNode  = fmt.Sprintf("the NetworkPolicies of the node's pods have more than %d different peers, %d rules or %d pods, ports and networks together, and this namespace more than its part; ",
		MaxPeerSets, MaxPeerRules, peers.MaxEntries) + widerPeers
)

const widerPeers = "write wider selectors or networks, or give rules the same ports"

// newNetRules returns the union of NetworkPolicies, which are sorted by id; of that what
// room says, which is asked for each different pair of a peer and ports. nil: all.
func (c *Compiler) newNetRules(policies []*parsed, room func(*ordered.Rule) bool) *netRules {
	type pair struct {
		peer  policy.Peer
		ports policy.PortSet
		names string
	}
	r := &netRules{}
	pairs := map[pair]bool{}
	has := map[policy.Peer]bool{}
	for _, n := range policies {
		r.policies = append(r.policies, n.ID)
		left, crowded := leftOut{kind: kindNetworkPolicy, id: n.ID, why: tooManyPeers}, leftOut{kind: kindNetworkPolicy, id: n.ID, why: crowdedNode}
		for i := range n.Rules {
			rule := &n.Rules[i]
			at := pair{rule.Peer, rule.Ports, portsText(rule.PortNames)}
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
			r.rules, r.names = append(r.rules, rule.Rule), append(r.names, rule.PortNames...)
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
	sortByPeer(r.rules)
	r.names = portsOnce(r.names)
	return r
}

// sortByPeer sorts rules of NetworkPolicies by peer and ports.
func sortByPeer(rules []*policy.Rule) {
	slices.SortStableFunc(rules, func(a, b *policy.Rule) int {
		return cmp.Or(a.Peer.Compare(b.Peer), strings.Compare(string(a.Ports), string(b.Ports)))
	})
}
