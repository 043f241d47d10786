package compile

import (
	"github.com/namegate/namegate/policy"
)

// clusterRules is what the views of pods that the same cluster policies select share.
type clusterRules struct {
	union[*clusterGroup]
	policies []*clusterPolicy // of them, in order
	shared   policy.View      // what a view has of these policies
	closed   policy.View      // the strictest settings of the enforcing ones
}

// newClusterRules returns the rules of groups.
func (c *Compiler) newClusterRules(groups []*clusterGroup) *clusterRules {
	r := &clusterRules{}
	c.serial++
	policies, admin, baseline := 0, 0, 0
	for _, g := range groups {
		c.fillSets(g)
		r.shared.Cluster = append(r.shared.Cluster, g.index)
		policies += len(g.policies)
		for _, p := range g.policies {
			p.union = c.serial
			if p.Tier == policy.Baseline {
				baseline += len(p.rules)
			} else {
				admin += len(p.rules)
			}
		}
	}
	r.policies = make([]*clusterPolicy, 0, policies)
	r.shared.Rules.Admin, r.shared.Rules.Baseline = make([]*policy.Rule, 0, admin), make([]*policy.Rule, 0, baseline)
	for _, p := range c.cluster.sorted {
		if p.union == c.serial {
			r.add(p, c.cluster.heavy)
		}
	}
	return r
}

// add adds the next policy in order. Rules with heavy peers are broken.
func (r *clusterRules) add(p *clusterPolicy, heavy map[policy.Peer]bool) {
	r.policies = append(r.policies, p)
	tier, unmatched, limits := &r.shared.Rules.Admin, &r.shared.AdminUnmatched, &r.shared.AdminLimits
	if p.Tier == policy.Baseline {
		tier, unmatched, limits = &r.shared.Rules.Baseline, &r.shared.BaselineUnmatched, &r.shared.BaselineLimits
	}
	first := len(*tier)
	*tier = append(*tier, p.rules...)
	if len(heavy) > 0 {
		for i, rule := range (*tier)[first:] {
			if heavy[rule.Peer] {
				(*tier)[first+i] = rule.Break()
			}
		}
	}
	if !p.Audit {
		*unmatched = max(*unmatched, p.Unmatched)
		*limits = limits.Strictest(p.Limits)
		r.closed.Enforced = true
		r.closed.Denied = max(r.closed.Denied, p.Denied)
		r.closed.Unmatched = max(r.closed.Unmatched, p.Unmatched)
		r.closed.Limits = r.closed.Limits.Strictest(p.Limits)
	}
}
