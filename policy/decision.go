package policy

import (
	"slices"
	"strings"
	"time"
)

// Decision is what a view says about one question.
type Decision struct {
	// Matches are in the order of policy name, then of the matches in the policy,
	// those of Audit policies included; nil means unmatched. It is shared and must
	// not be changed.
	Matches []*Match
}

// Allowed tells whether a match of an enforcing policy exists.
func (d Decision) Allowed() bool {
	for _, m := range d.Matches {
		if !m.Audit {
			return true
		}
	}
	return false
}

// Audited tells whether matches exist, and only of Audit policies.
func (d Decision) Audited() bool {
	return len(d.Matches) > 0 && !d.Allowed()
}

// Opening is one port set that an answer opens, and for how long.
type Opening struct {
	Ports    PortSet
	Lifetime time.Duration
	// By lists the matches, as "namespace/policy pattern". It may be shared and must
	// not be changed.
	By []string
}

// Openings returns per distinct port set of the enforcing policies' matches the
// longest lifetime of an address that came with a TTL of ttl seconds. They are
// sorted by port set; an unmatched or merely audited name opens nothing.
func (d Decision) Openings(ttl uint32) []Opening {
	var open []Opening
	for _, m := range d.Matches {
		if m.Audit {
			continue
		}
		i := slices.IndexFunc(open, func(o Opening) bool { return o.Ports == m.Ports })
		if i < 0 {
			open = append(open, Opening{m.Ports, m.TTL.Lifetime(ttl), m.bys()})
			continue
		}
		open[i].Lifetime = max(open[i].Lifetime, m.TTL.Lifetime(ttl))
		if by := m.By(); !slices.Contains(open[i].By, by) {
			open[i].By = append(open[i].By, by) // a copy: the shared slice has no room
		}
	}
	slices.SortFunc(open, func(a, b Opening) int { return strings.Compare(string(a.Ports), string(b.Ports)) })
	return open
}
