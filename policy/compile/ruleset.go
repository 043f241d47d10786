package compile

import (
	"slices"

	"github.com/namegate/namegate/policy"
)

// ruleset is the shared part of the views of pods with the same selecting policies.
type ruleset struct {
	union[*parsed]
	shared policy.View    // of whatever pod
	left   []leftOut      // the rules beyond a bound
	beside *netRules      // of list
	list   []*policy.Rule // the rules of shared, and of beside
}

// newRuleset returns the union of policies, which are sorted by id.
func newRuleset(policies []*parsed) *ruleset {
	r := &ruleset{}
	v := &r.shared
	v.Policies = make([]string, len(policies))
	matches, labels, rules := 0, 0, 0
	for _, p := range policies {
		matches += p.matches
		labels += p.labels
		rules += len(p.Rules)
	}
	if matches > MaxViewMatches || labels > MaxViewLabels || len(entrySetsOf(policies)) > MaxViewPortSets {
		policies, r.left = withinBounds(policies)
	}
	v.Rules.Namespace = make([]*policy.Rule, 0, rules)
	var audited []*policy.Rule // of NamespaceChecked
	for i, p := range policies {
		v.Policies[i] = p.ID
		for _, rule := range p.Rules {
			of := &v.Rules.Namespace
			switch {
			case rule.ServerName && p.Audit:
				of = &audited
			case rule.ServerName:
				of = &v.Rules.NamespaceChecked
			}
			*of = append(*of, rule.Rule)
		}
		if p.encrypted != nil {
			v.Rules.NamespaceDeny = append(v.Rules.NamespaceDeny, p.encrypted)
		}
		if p.Audit {
			continue
		}
		v.Enforced = true
		v.Denied = max(v.Denied, p.Denied)
		v.Unmatched = max(v.Unmatched, p.Unmatched)
		v.Limits = v.Limits.Strictest(p.Limits)
	}
	v.Rules.NamespaceChecked = append(v.Rules.NamespaceChecked, audited...)
	v.Index = policy.NewIndex(slices.Concat(v.Rules.Namespace, v.Rules.NamespaceChecked), matches)
	r.left = append(r.left, overOpenings(v.Index, tooManyOpenings)...)
	return r
}

// with returns the rules of the ruleset, nil for none, followed by the rules of the
// NetworkPolicies. Most pods with the same policies have the same NetworkPolicies, so the last list is
// kept for them.
func (r *ruleset) with(beside *netRules) []*policy.Rule {
	if r == nil {
		return beside.rules
	}
	if len(beside.rules) == 0 {
		return r.shared.Rules.Namespace
	}
	if r.beside != beside {
		r.beside, r.list = beside, slices.Concat(r.shared.Rules.Namespace, beside.rules)
	}
	return r.list
}

// entrySet is a set of the kernel that a rule with names asks for: rules with the same ports share one, and one with
// ServerName has its own.
type entrySet struct {
	ports policy.PortSet
	id    policy.RuleID
}

// entrySetsOf returns the distinct sets of the enforcing policies.
func entrySetsOf(policies []*parsed) map[entrySet]struct{} {
	sets := map[entrySet]struct{}{}
	for _, p := range policies {
		for _, rule := range p.Rules {
			if !p.Audit {
				sets[entrySet{rule.Ports, rule.ID}] = struct{}{}
			}
		}
	}
	return sets
}

// closedRuleset returns the ruleset of a pod that only may be denied: the settings of
// several views at their strictest, and nothing allowed.
func closedRuleset(of []*policy.View) *ruleset {
	v := policy.View{Index: &policy.Index{}}
	for _, o := range of {
		v.Enforced = v.Enforced || o.Enforced
		v.Denied = max(v.Denied, o.Denied)
		v.Unmatched = max(v.Unmatched, o.Unmatched)
		v.Limits = v.Limits.Strictest(o.Limits)
		v.Policies = append(v.Policies, o.Policies...)
	}
	slices.Sort(v.Policies)
	v.Policies = slices.Compact(v.Policies)
	return &ruleset{shared: v}
}
