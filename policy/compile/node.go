package compile

import (
	"fmt"
	"maps"
	"slices"

	"github.com/namegate/namegate/policy"
)

// nodeSelection is the compiler's state of the node as a subject.
type nodeSelection struct {
	cluster *clusterRules // nil: no policy selects the node
	view    *policy.View
	// What view was made of, beside its node.
	viewOf              *clusterRules
	turned, unconfirmed []string // names of policies, sorted
}

// selectNode finds out which policies select the node.
func (c *Compiler) selectNode(n *policy.Node) {
	var list []*clusterGroup
	for _, g := range c.cluster.groups {
		if n != nil && g.nodes != nil && g.nodes.Matches(n.Labels) {
			list = append(list, g)
		}
	}
	c.node.cluster = c.cluster.unions.union(c.number, list)
}

// addNode adds the view of the node, the last one if nothing in it changed. Policies are only
// audited in it where their safeguard ended their enforcement. While failsafes are missing there is
// none.
func (c *Compiler) addNode(in *Input, s *draft) {
	n, u := in.Node, c.node.cluster
	if u == nil || n.Missing != "" {
		c.node.view = nil
		if u != nil {
			s.Problems = append(s.Problems, u.notAccepted(n)...)
		}
		return
	}
	audited := func(p *clusterPolicy) bool {
		_, turned := in.TurnedToAudit[p.ID]
		return !p.Audit && turned
	}
	unconfirmed := func(p *clusterPolicy) bool { return !p.Audit && !audited(p) && in.Unconfirmed[p.ID] }
	turned, waiting := slices.Sorted(maps.Keys(in.TurnedToAudit)), slices.Sorted(maps.Keys(in.Unconfirmed))
	if c.node.view == nil || c.node.viewOf != u || !slices.Equal(c.node.turned, turned) || !slices.Equal(c.node.unconfirmed, waiting) || !c.node.view.Node.Same(n) {
		c.node.view, c.node.viewOf, c.node.turned, c.node.unconfirmed = newView(policy.Pod{PodRef: policy.NodeRef(n.Name), Labels: n.Labels, IPs: policy.NodeSubjects}, nil), u, turned, waiting
		c.node.view.Node, c.node.view.Workload = n, ""
		rules := u
		if slices.ContainsFunc(u.policies, audited) {
			rules = u.auditing(audited, c.cluster.heavy)
		}
		rules.addTo(c.node.view)
		c.node.view.Traffic = rules.traffic(func(*clusterPolicy) bool { return false })
		if slices.ContainsFunc(u.policies, unconfirmed) {
			c.node.view.Confirmed = rules.traffic(unconfirmed)
		}
	}
	s.Views = append(s.Views, c.node.view)
	for _, p := range u.policies {
		if !audited(p) {
			continue
		}
		s.Problems = append(s.Problems, policy.Problem{
			Object: p.Object, Reason: policy.ReasonTurnedToAudit, Pod: c.node.view.Pod.PodRef, Policies: []string{p.ID},
			Message: fmt.Sprintf("the node %s only audits the policy: %s", n.Name, in.TurnedToAudit[p.ID]),
		})
	}
}

// notAccepted returns a problem for each policy of a node whose failsafes are missing.
func (r *clusterRules) notAccepted(n *policy.Node) (out []policy.Problem) {
	for _, p := range r.policies {
		out = append(out, policy.Problem{
			Object: p.Object, Reason: policy.ReasonFailsafesUnknown, Pod: policy.NodeRef(n.Name), Policies: []string{p.ID},
			Message: fmt.Sprintf("the node %s does not accept the policy, which could lock it out: %s", n.Name, n.Missing),
		})
	}
	return out
}

// auditing returns the rules with some of the policies as Audit policies.
func (r *clusterRules) auditing(some func(*clusterPolicy) bool, heavy map[policy.Peer]bool) *clusterRules {
	out, matches := &clusterRules{}, 0
	for _, p := range r.policies {
		if some(p) {
			p = p.audited()
		}
		out.add(p, heavy)
		for _, rule := range p.rules {
			matches += len(rule.Matches)
		}
	}
	out.shared.Cluster = []*policy.Index{policy.NewIndex(slices.Collect(out.shared.Rules.Cluster()), matches)}
	return out
}

// traffic returns the rules in order without those of some of the policies.
func (r *clusterRules) traffic(unconfirmed func(*clusterPolicy) bool) *policy.TrafficRules {
	without := map[string]bool{}
	for _, p := range r.policies {
		without[p.ID] = unconfirmed(p)
	}
	rest := func(rules []*policy.Rule) []*policy.Rule {
		return slices.DeleteFunc(slices.Clone(rules), func(r *policy.Rule) bool { return !r.Standard && without[r.Policy] })
	}
	return &policy.TrafficRules{Local: policy.Directions{Egress: rest(slices.Concat(r.shared.Rules.Admin, r.shared.Rules.Baseline))}}
}

// audited returns the policy as an Audit policy.
func (p *clusterPolicy) audited() *clusterPolicy {
	from := *p.Policy
	from.Audit = true
	out := &clusterPolicy{Policy: &from, rules: make([]*policy.Rule, len(p.rules)), outbound: p.outbound}
	for i, r := range p.rules {
		audited := *r
		audited.Audit, audited.Matches = true, make([]*policy.Match, len(r.Matches))
		for j, m := range r.Matches {
			of := *m
			of.Rule = &audited
			audited.Matches[j] = &of
		}
		out.rules[i] = &audited
	}
	return out
}
