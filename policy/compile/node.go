package compile

import (
	"fmt"
	"maps"
	"slices"

	"github.com/namegate/namegate/crds/v1alpha1"
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
// none, and while interfaces are missing there are no policies that name none.
func (c *Compiler) addNode(in *Input, s *draft) {
	n, u := in.Node, c.node.cluster
	if u == nil {
		c.node.view = nil
		return
	}
	refused := func(p *clusterPolicy) bool { return n.Missing != "" || len(n.Interfaces) == 0 && p.Interfaces == nil }
	name := func(p *clusterPolicy) string { return p.from.(*v1alpha1.NodeNetworkPolicy).Name }
	audited := func(p *clusterPolicy) bool {
		_, turned := in.TurnedToAudit[name(p)]
		return !p.Audit && turned
	}
	unconfirmed := func(p *clusterPolicy) bool { return !p.Audit && !audited(p) && in.Unconfirmed[name(p)] }
	accepted := 0
	for _, p := range u.policies {
		switch {
		case n.Missing != "":
			s.ofNode(n, p, policy.ReasonFailsafesUnknown, "does not accept the policy, which could lock it out: "+n.Missing)
		case refused(p):
			s.ofNode(n, p, policy.ReasonInterfacesUnknown, "does not accept the policy: no interface has an address of the Node's status or a default route; write interfaces")
		default:
			if accepted++; audited(p) {
				s.ofNode(n, p, policy.ReasonTurnedToAudit, "only audits the policy: "+in.TurnedToAudit[name(p)])
			}
		}
	}
	if accepted == 0 {
		c.node.view = nil
		return
	}
	turned, waiting := slices.Sorted(maps.Keys(in.TurnedToAudit)), slices.Sorted(maps.Keys(in.Unconfirmed))
	if c.node.view == nil || c.node.viewOf != u || !slices.Equal(c.node.turned, turned) || !slices.Equal(c.node.unconfirmed, waiting) || !c.node.view.Node.Same(n) {
		v := newView(policy.Pod{PodRef: policy.NodeRef(n.Name), Labels: n.Labels, IPs: policy.NodeSubjects}, nil)
		c.node.view, c.node.viewOf, c.node.turned, c.node.unconfirmed = v, u, turned, waiting
		rules := u
		if accepted < len(u.policies) || slices.ContainsFunc(u.policies, audited) {
			rules = u.onNode(refused, audited, c.cluster.heavy)
		}
		rules.addTo(v)
		v.Node, v.Workload, v.Traffic = n, "", &policy.TrafficRules{}
		*v.Traffic = rules.traffic
		v.Traffic.Local.Egress = v.Rules.Admin
		if slices.ContainsFunc(rules.policies, unconfirmed) {
			v.Confirmed = rules.confirmed(v.Traffic, unconfirmed)
		}
	}
	s.Views = append(s.Views, c.node.view)
}

// ofNode reports what a node does with a policy.
func (s *draft) ofNode(n *policy.Node, p *clusterPolicy, reason, does string) {
	s.Problems = append(s.Problems, policy.Problem{
		Object: p.Object, Reason: reason, Pod: policy.NodeRef(n.Name), Policies: []string{p.ID}, Message: fmt.Sprintf("the node %s %s", n.Name, does),
	})
}

// onNode returns the rules without those of the refused policies, with audited ones as Audit policies.
func (r *clusterRules) onNode(refused, audited func(*clusterPolicy) bool, heavy map[policy.Peer]bool) *clusterRules {
	out, matches := &clusterRules{}, 0
	for _, p := range r.policies {
		if refused(p) {
			continue
		}
		if audited(p) {
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

// confirmed returns rules without those of some of the policies.
func (r *clusterRules) confirmed(all *policy.TrafficRules, unconfirmed func(*clusterPolicy) bool) *policy.TrafficRules {
	without, rest := map[string]bool{}, *all
	for _, p := range r.policies {
		without[p.ID] = unconfirmed(p)
	}
	for t := policy.Local; t <= policy.Untracked; t++ {
		of := rest.Of(t)
		for _, rules := range []*[]*policy.Rule{&of.Ingress, &of.Egress} {
			*rules = slices.DeleteFunc(slices.Clone(*rules), func(r *policy.Rule) bool { return without[r.Policy] })
		}
	}
	return &rest
}

// audited returns the policy as an Audit policy.
func (p *clusterPolicy) audited() *clusterPolicy {
	from := *p.Policy
	from.Audit = true
	out := &clusterPolicy{Policy: &from, from: p.from, rules: make([]*policy.Rule, len(p.rules)), outbound: p.outbound}
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
