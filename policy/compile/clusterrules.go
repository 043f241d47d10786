package compile

import (
	"slices"

	"github.com/namegate/namegate/policy"
)

// clusterRules is what the views of pods that the same cluster policies select share.
type clusterRules struct {
	union[*clusterGroup]
	policies []*clusterPolicy // of them, in order
	shared   policy.View      // what a view has of these policies
	closed   policy.View      // the strictest settings of the enforcing ones
	ingress  *clusterIngress  // nil: none has rules for it
	// traffic are the rules of policies for nodes, but for those for egress of Local, which are the tier
	// Admin of shared.
	traffic policy.TrafficRules
}

// newClusterRules returns the rules of groups.
func (c *Compiler) newClusterRules(groups []*clusterGroup) *clusterRules {
	r := &clusterRules{}
	var inbound []*clusterGroup
	for _, g := range groups {
		c.fillSets(g)
		r.shared.Cluster = append(r.shared.Cluster, g.index)
		if slices.ContainsFunc(g.policies, (*clusterPolicy).isolates) {
			inbound = append(inbound, g)
		}
	}
	policies := c.policiesOf(groups)
	admin, baseline := 0, 0
	for _, p := range policies {
		if p.Tier == policy.Baseline {
			baseline += p.outbound
		} else {
			admin += p.outbound
		}
	}
	r.shared.Rules.Admin, r.shared.Rules.Baseline = make([]*policy.Rule, 0, admin), make([]*policy.Rule, 0, baseline)
	for _, p := range policies {
		r.add(p, c.cluster.heavy)
	}
	r.ingress = c.cluster.inbound.union(c.number, inbound)
	return r
}

// policiesOf returns the policies of groups, in order.
func (c *Compiler) policiesOf(groups []*clusterGroup) []*clusterPolicy {
	c.serial++
	n := 0
	for _, g := range groups {
		n += len(g.policies)
		for _, p := range g.policies {
			p.union = c.serial
		}
	}
	policies := make([]*clusterPolicy, 0, n)
	for _, p := range c.cluster.sorted {
		if p.union == c.serial {
			policies = append(policies, p)
		}
	}
	return policies
}

// add adds the next policy in order. Rules with heavy peers are broken.
func (r *clusterRules) add(p *clusterPolicy, heavy map[policy.Peer]bool) {
	r.policies = append(r.policies, p)
	if p.Nodes != nil {
		of := r.traffic.Of(p.Traffic)
		if of.Ingress = appendRules(of.Ingress, p.ingress(), heavy); p.Traffic != policy.Local {
			of.Egress = appendRules(of.Egress, p.egress(), heavy)
			return
		}
	}
	tier, unmatched, limits := &r.shared.Rules.Admin, &r.shared.AdminUnmatched, &r.shared.AdminLimits
	if p.Tier == policy.Baseline {
		tier, unmatched, limits = &r.shared.Rules.Baseline, &r.shared.BaselineUnmatched, &r.shared.BaselineLimits
	}
	*tier = appendRules(*tier, p.egress(), heavy)
	if !p.Audit && p.outbound > 0 {
		*unmatched = max(*unmatched, p.Unmatched)
		*limits = limits.Strictest(p.Limits)
		r.closed.Enforced = true
		r.closed.Denied = max(r.closed.Denied, p.Denied)
		r.closed.Unmatched = max(r.closed.Unmatched, p.Unmatched)
		r.closed.Limits = r.closed.Limits.Strictest(p.Limits)
	}
}

// appendRules appends rules to a tier, those with heavy peers as broken ones.
func appendRules(tier, rules []*policy.Rule, heavy map[policy.Peer]bool) []*policy.Rule {
	first := len(tier)
	tier = append(tier, rules...)
	if len(heavy) > 0 {
		for i, rule := range tier[first:] {
			if heavy[rule.Peer] {
				tier[first+i] = rule.Break()
			}
		}
	}
	return tier
}

// hasEgress tells whether there are rules for egress.
func (r *clusterRules) hasEgress() bool {
	return r != nil && len(r.shared.Rules.Admin)+len(r.shared.Rules.Baseline) > 0
}

// hasIngress tells whether there are rules for ingress.
func (r *clusterRules) hasIngress() bool { return r != nil && r.ingress != nil }
