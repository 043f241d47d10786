package compile

import (
	"fmt"
	"maps"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/peers"
)

// MaxClusterEntries bounds the cost of filling the peer sets that the cluster policies of this
// node's pods have: namespaces have the rest.
const MaxClusterEntries = peers.MaxEntries / 2

// limitClusterEntries breaks the rules whose peers have no room, in the order of the policies,
// those of Audit policies last. Their sets are weighed in each compile, and not filled. most is
// not below the weight of all sets of cluster policies.
func (c *Compiler) limitClusterEntries(w peers.Weigher, most int, s *draft) {
	var heavy map[policy.Peer]bool
	if most > c.cluster.entries {
		heavy = c.heavyPeers(w)
		for _, p := range c.cluster.sorted {
			if problem, some := p.heavyProblem(heavy); some {
				s.Problems = append(s.Problems, problem)
			}
		}
	}
	if maps.Equal(heavy, c.cluster.heavy) {
		return
	}
	c.cluster.heavy = heavy
	clear(c.cluster.inbound.unions)
	again := map[*clusterRules]*clusterRules{}
	for key, r := range c.cluster.unions.unions {
		again[r] = c.newClusterRules(r.members)
		again[r].union = r.union
		c.cluster.unions.unions[key] = again[r]
	}
	if r := again[c.node.cluster]; r != nil {
		c.node.cluster = r
	}
	for _, sel := range c.selected {
		if r := again[sel.cluster]; r != nil {
			sel.cluster = r
		}
	}
}

// heavyPeers returns the peers for which there is no room, nil for none.
func (c *Compiler) heavyPeers(w peers.Weigher) map[policy.Peer]bool {
	live, total := map[policy.Peer]*liveSet{}, 0
	for _, g := range c.cluster.groups {
		for _, l := range g.sets {
			if live[l.Spec.Peer] == nil {
				live[l.Spec.Peer] = l
				total += l.Weight
			}
		}
	}
	if total <= c.cluster.entries {
		return nil
	}
	heavy, left := map[policy.Peer]bool{}, c.cluster.entries
	for _, audit := range []bool{false, true} {
		for _, p := range c.cluster.sorted {
			for _, r := range p.Rules {
				if p.Audit != audit || r.Spec == nil || live[r.Spec.Peer] == nil {
					continue
				}
				l := live[r.Spec.Peer]
				delete(live, r.Spec.Peer)
				if l.Weigh(w); l.Weight > left {
					heavy[r.Spec.Peer] = true
				} else {
					left -= l.Weight
				}
			}
		}
	}
	return heavy
}

// heavyProblem tells of the policy's rules whose peers have no room.
func (p *clusterPolicy) heavyProblem(heavy map[policy.Peer]bool) (problem policy.Problem, some bool) {
	path, n := "", 0
	for _, r := range p.Rules {
		if r.Spec != nil && heavy[r.Spec.Peer] {
			if n++; n == 1 {
				path = r.Path
			}
		}
	}
	rules := rulesText(n, "policy", "has no room on this node and matches", "have no room on this node and match")
	return policy.Problem{
		Object: p.Object, Reason: policy.ReasonNoRoom, Path: path,
		Message: fmt.Sprintf("%s nothing as Accept, and as Deny or Pass every connection, which is denied: finding the destinations of all cluster policies costs more "+
			"than %d pods, ports and networks together; write a network in place of many pods, or selectors with fewer requirements that select fewer pods", rules, MaxClusterEntries),
	}, n > 0
}
