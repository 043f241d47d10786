package policy

import (
	"maps"
	"slices"

	"github.com/namegate/namegate/policy/fqdn"
)

// ruleset is what the views of pods with the same selecting policies share.
type ruleset struct {
	parsed     []*parsed // sorted by id
	enforced   bool
	denied     Denied
	unmatched  Unmatched
	entries    []Entry
	policies   []string
	portSets   []PortSet
	exactNames []fqdn.Name
	left       []leftOut // what a bound leaves out
	matcher    *fqdn.Matcher[*Match]
	serial     uint64 // in its compiler
	used       uint64 // the compile that used it last
}

// newRuleset returns the union of policies, which are sorted by id.
func newRuleset(policies []*parsed) *ruleset {
	r := &ruleset{parsed: policies, policies: make([]string, len(policies))}
	matches, labels, entries := 0, 0, 0
	for _, p := range policies {
		matches += len(p.matches)
		labels += p.labels
		entries += len(p.entries)
	}
	ports := portSetsOf(policies)
	if matches > MaxViewMatches || labels > MaxViewLabels || len(ports) > MaxViewPortSets {
		policies, r.left = withinBounds(policies)
		ports = portSetsOf(policies)
	}
	all := make([]*Match, 0, matches)
	r.entries = make([]Entry, 0, entries)
	for i, p := range policies {
		r.policies[i] = p.id
		r.entries = append(r.entries, p.entries...)
		all = append(all, p.matches...)
		if p.audit {
			continue
		}
		r.enforced = true
		r.denied = max(r.denied, p.denied)
		r.unmatched = max(r.unmatched, p.unmatched)
	}
	r.portSets = slices.Sorted(maps.Keys(ports))
	r.matcher = newMatcher(all)
	r.exactNames = r.enforcedNames()
	return r
}

// portSetsOf returns the distinct port sets of the enforcing policies.
func portSetsOf(policies []*parsed) map[PortSet]struct{} {
	ports := map[PortSet]struct{}{}
	for _, p := range policies {
		for j := range p.entries {
			if !p.audit {
				ports[p.entries[j].Ports] = struct{}{}
			}
		}
	}
	return ports
}

func (r *ruleset) enforcedNames() []fqdn.Name {
	var names []fqdn.Name
	for name, own := range r.matcher.Exact() {
		if slices.ContainsFunc(own, func(m *Match) bool { return !m.Audit }) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// closedRuleset returns the ruleset of a pod that only may be denied: the settings of
// several rulesets at their strictest, and nothing allowed.
func closedRuleset(of []*ruleset) *ruleset {
	r := &ruleset{}
	for _, o := range of {
		r.enforced = r.enforced || o.enforced
		r.denied = max(r.denied, o.denied)
		r.unmatched = max(r.unmatched, o.unmatched)
		r.policies = append(r.policies, o.policies...)
	}
	slices.Sort(r.policies)
	r.policies = slices.Compact(r.policies)
	return r
}
