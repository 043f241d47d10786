package compile

import (
	"slices"

	"github.com/namegate/namegate/policy"
)

// clusterRules is what the views of pods that the same cluster policies select share.
type clusterRules struct {
	groups          []*clusterGroup  // sorted by subject
	policies        []*clusterPolicy // of them, in order
	admin, baseline []*policy.Rule
	shared          policy.View // what a view has of these policies, but for Rules
	closed          policy.View // the strictest settings of the enforcing ones
	sets            []*liveSet  // of the rules
	used            uint64      // the compile that used it last
}

// use notes that a compile uses the rules, of which there may be none.
func (r *clusterRules) use(number uint64) *clusterRules {
	if r != nil {
		r.used = number
	}
	return r
}

// newClusterRules returns the rules of groups.
func (c *Compiler) newClusterRules(groups []*clusterGroup) *clusterRules {
	r := &clusterRules{groups: groups}
	c.serial++
	for _, g := range groups {
		r.shared.Cluster = append(r.shared.Cluster, g.index)
		for _, p := range g.policies {
			p.union = c.serial
		}
	}
	for _, p := range c.cluster.sorted {
		if p.union == c.serial {
			r.add(p, c.cluster.heavy)
			for j, rule := range p.rules {
				if spec := p.Rules[j].Spec; spec != nil && !rule.Broken {
					r.sets = append(r.sets, c.liveSet(spec))
				}
			}
		}
	}
	return r
}

// add adds the next policy in order. Rules with heavy peers are broken.
func (r *clusterRules) add(p *clusterPolicy, heavy map[policy.Peer]bool) {
	r.policies = append(r.policies, p)
	tier, unmatched := &r.admin, &r.shared.AdminUnmatched
	if p.Tier == policy.Baseline {
		tier, unmatched = &r.baseline, &r.shared.BaselineUnmatched
	}
	for _, rule := range p.rules {
		if heavy[rule.Peer] {
			rule = rule.Break()
		}
		*tier = append(*tier, rule)
	}
	if !p.Audit {
		*unmatched = max(*unmatched, p.Unmatched)
		r.closed.Enforced = true
		r.closed.Denied = max(r.closed.Denied, p.Denied)
		r.closed.Unmatched = max(r.closed.Unmatched, p.Unmatched)
	}
}

// listKey is what the rules of a view are made of, each nil for nothing.
type listKey struct {
	rules   *ruleset
	egress  *egressRules
	cluster *clusterRules
}

// ruleList is the rules of the views of one key.
type ruleList struct {
	rules []*policy.Rule
	used  uint64 // the compile that used it last
}

// rulesOfView returns the rules of a view in order. Views of the same key share them.
func (c *Compiler) rulesOfView(k listKey) []*policy.Rule {
	var own []*policy.Rule
	switch {
	case k.rules != nil && k.egress != nil:
		own = k.rules.with(k.egress)
	case k.rules != nil:
		own = k.rules.shared.Rules
	case k.egress != nil:
		own = k.egress.rules
	}
	if k.cluster == nil {
		return own
	}
	list := c.cluster.lists[k]
	if list == nil {
		list = &ruleList{rules: slices.Concat(k.cluster.admin, own, k.cluster.baseline)}
		c.cluster.lists[k] = list
	}
	list.used = c.number
	return list.rules
}
