package compile

import (
	"fmt"
	"slices"

	"github.com/namegate/namegate/policy"
)

// nodeSelection is the compiler's state of the node as a subject.
type nodeSelection struct {
	cluster *clusterRules // nil: no policy selects the node
	view    *policy.View
	viewOf  *clusterRules // what view was made of, beside its node
}

// selectNode finds out which policies select the node.
func (c *Compiler) selectNode(n *policy.Node) {
	var list []*clusterGroup
	for _, g := range c.cluster.groups {
		if n != nil && g.nodes != nil && g.nodes.Matches(n.Labels) {
			list = append(list, g)
		}
	}
	c.node.cluster = c.clusterUnion(list)
}

// addNode adds the view of the node, the last one if nothing in it changed.
func (c *Compiler) addNode(n *policy.Node, s *draft) {
	u := c.node.cluster
	if u == nil {
		c.node.view = nil
		return
	}
	if c.node.view == nil || c.node.viewOf != u || !c.node.view.Node.Same(n) {
		c.node.view, c.node.viewOf = newView(policy.Pod{PodRef: policy.NodeRef(n.Name), Labels: n.Labels, IPs: policy.NodeSubjects}, nil), u
		c.node.view.Node, c.node.view.Workload = n, ""
		if u.addTo(c.node.view); n.Unknown != "" {
			auditAlone(c.node.view)
		}
	}
	s.Views = append(s.Views, c.node.view)
	if n.Unknown == "" {
		return
	}
	for _, p := range u.policies {
		if !p.Audit {
			s.Problems = append(s.Problems, policy.Problem{
				Object: p.Object, Reason: policy.ReasonFailsafesUnknown,
				Message: fmt.Sprintf("the policy is only audited on the node %s, which it could lock out: %s", n.Name, n.Unknown),
			})
		}
	}
}

// auditAlone makes the rules of a view those of Audit policies.
func auditAlone(v *policy.View) {
	all := 0
	for _, rules := range []*[]*policy.Rule{&v.Rules.Admin, &v.Rules.Baseline} {
		*rules = slices.Clone(*rules)
		for i, r := range *rules {
			audited := *r
			audited.Audit, audited.Matches = true, make([]*policy.Match, len(r.Matches))
			for j, m := range r.Matches {
				of := *m
				of.Audit, of.Rule = true, &audited
				audited.Matches[j] = &of
			}
			(*rules)[i], all = &audited, all+len(r.Matches)
		}
	}
	v.Cluster = []*policy.Index{policy.NewIndex(slices.Collect(v.Rules.Cluster()), all)}
	v.AdminUnmatched, v.BaselineUnmatched = policy.Resolve, policy.Resolve
	v.AdminLimits, v.BaselineLimits = policy.DNSLimits{}, policy.DNSLimits{}
}
