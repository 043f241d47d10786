package convert

import (
	"fmt"
	"slices"

	"k8s.io/utils/ptr"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy/fqdn"
)

// queries returns the names of the DNS queries that a rule allows.
func (e *ciliumEgress) queries() (texts []string) {
	for _, to := range e.ToPorts {
		if to.Rules == nil {
			continue
		}
		for _, d := range to.Rules.DNS {
			texts = append(texts, d.MatchName+d.MatchPattern)
		}
	}
	return texts
}

// dns tells whether a rule allows DNS and nothing else.
func (e *ciliumEgress) dns() bool {
	var ports []string
	for _, to := range e.ToPorts {
		if len(to.Ports) == 0 {
			return false
		}
		for _, p := range to.Ports {
			if p.EndPort > 53 {
				return false
			}
			ports = append(ports, p.Port)
		}
	}
	return dnsAlone(ports, func(port string) string { return port })
}

// ciliumQueries returns the reply to queries for other names than those of the rules: the rules
// for DNS limit them, if they do not allow every name.
func (o *object) ciliumQueries(egress []ciliumEgress, path string, rules []rule) v1alpha1.Unmatched {
	var queries []fqdn.Pattern
	for i := range egress {
		if len(egress[i].ToFQDNs) > 0 {
			continue
		}
		for j, text := range egress[i].queries() {
			n, err := ciliumNames.convert(text)
			if err != nil {
				o.note(Failed, fmt.Sprintf("%s.egress[%d] rules.dns[%d]", path, i, j), "%v", err)
				continue
			}
			for _, m := range n.matches {
				queries = append(queries, pattern(m))
			}
		}
	}
	if len(queries) == 0 || slices.ContainsFunc(queries, func(q fqdn.Pattern) bool { return q.String() == "*" }) {
		return ""
	}
	o.note(Narrower, path, "rules.dns becomes dns.unmatched: Refuse: queries for the names of toFQDNs are answered, and no others")
	for _, r := range rules {
		for _, m := range r.matches {
			p := pattern(m)
			name, exact := p.Exact()
			if !slices.ContainsFunc(queries, func(q fqdn.Pattern) bool { return q.String() == p.String() || exact && q.Matches(name) }) {
				o.note(Wider, path, "queries for %s are answered, which rules.dns may not allow", p)
			}
		}
	}
	return v1alpha1.UnmatchedRefuse
}

// pattern returns a match as what it matches.
func pattern(m v1alpha1.Match) fqdn.Pattern {
	p, _ := fqdn.ParsePattern(ptr.Deref(m.Name, "") + ptr.Deref(m.Pattern, "")) // it was read before
	return p
}
