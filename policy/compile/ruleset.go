package compile

import (
	"maps"
	"slices"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// ruleset is what the views of pods with the same selecting policies share.
type ruleset struct {
	parsed []*parsed   // sorted by id
	shared policy.View // of whatever pod
	left   []leftOut   // what a bound leaves out
	serial uint64      // in its compiler
	used   uint64      // the compile that used it last
}

// newRuleset returns the union of policies, which are sorted by id.
func newRuleset(policies []*parsed) *ruleset {
	r := &ruleset{parsed: policies}
	v := &r.shared
	v.Policies = make([]string, len(policies))
	matches, labels, entries := 0, 0, 0
	for _, p := range policies {
		matches += len(p.Matches)
		labels += p.labels
		entries += len(p.Entries)
	}
	ports := portSetsOf(policies)
	if matches > MaxViewMatches || labels > MaxViewLabels || len(ports) > MaxViewPortSets {
		policies, r.left = withinBounds(policies)
		ports = portSetsOf(policies)
	}
	all := make([]*policy.Match, 0, matches)
	v.Entries = make([]policy.Entry, 0, entries)
	for i, p := range policies {
		v.Policies[i] = p.ID
		v.Entries = append(v.Entries, p.Entries...)
		all = append(all, p.Matches...)
		if p.Audit {
			continue
		}
		v.Enforced = true
		v.Denied = max(v.Denied, p.Denied)
		v.Unmatched = max(v.Unmatched, p.Unmatched)
	}
	m := policy.NewMatcher(all)
	v.Rules = &policy.Rules{Matcher: m, PortSets: slices.Sorted(maps.Keys(ports)), ExactNames: enforcedNames(m)}
	return r
}

// portSetsOf returns the distinct port sets of the enforcing policies.
func portSetsOf(policies []*parsed) map[policy.PortSet]struct{} {
	ports := map[policy.PortSet]struct{}{}
	for _, p := range policies {
		for j := range p.Entries {
			if !p.Audit {
				ports[p.Entries[j].Ports] = struct{}{}
			}
		}
	}
	return ports
}

func enforcedNames(m *fqdn.Matcher[*policy.Match]) []fqdn.Name {
	var names []fqdn.Name
	for name, own := range m.Exact() {
		if slices.ContainsFunc(own, func(m *policy.Match) bool { return !m.Audit }) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// closedRuleset returns the ruleset of a pod that only may be denied: the settings of
// several rulesets at their strictest, and nothing allowed.
func closedRuleset(of []*ruleset) *ruleset {
	v := policy.View{Rules: &policy.Rules{}}
	for _, o := range of {
		v.Enforced = v.Enforced || o.shared.Enforced
		v.Denied = max(v.Denied, o.shared.Denied)
		v.Unmatched = max(v.Unmatched, o.shared.Unmatched)
		v.Policies = append(v.Policies, o.shared.Policies...)
	}
	slices.Sort(v.Policies)
	v.Policies = slices.Compact(v.Policies)
	return &ruleset{shared: v}
}
