package policy

import (
	"slices"
	"strings"
	"time"
)

// Decision is the result of the evaluation of one question.
type Decision struct {
	// Matches are in the order of policy name, then of the matches in the policy,
	// including Audit policies; nil means unmatched. It is shared and must not be
	// changed.
	Matches []*Match
	// Denied is the match of a Deny rule that decided, nil for none.
	Denied *Match
	// Reply is the kind of reply: Resolve for the answer. The proxy may still answer a
	// name that the pod's resolver completed.
	Reply Unmatched
	would bool // the matches of Audit policies count
}

// Allowed tells whether a match of an enforcing policy accepts.
func (d Decision) Allowed() bool {
	for _, m := range d.Matches {
		if (d.would || !m.Audit) && m.accepts() {
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
func (d Decision) Openings(ttl uint32) []Opening { return d.AppendOpenings(nil, ttl) }

// AppendOpenings is Openings into a slice that is empty and has room.
func (d Decision) AppendOpenings(open []Opening, ttl uint32) []Opening {
	var seen openingIndex
	if len(d.Matches) > indexFrom {
		seen = openingIndex{map[PortSet]int{}, map[openedBy]struct{}{}}
	}
	for _, m := range d.Matches {
		if m.Audit || !m.accepts() {
			continue
		}
		i, by := seen.find(open, m)
		if i == len(open) {
			open = append(open, Opening{m.Ports, m.TTL.Lifetime(ttl), m.bys()})
			continue
		}
		open[i].Lifetime = max(open[i].Lifetime, m.TTL.Lifetime(ttl))
		if by {
			open[i].By = append(open[i].By, m.By()) // a copy: the shared slice has no room
		}
	}
	slices.SortFunc(open, func(a, b Opening) int { return strings.Compare(string(a.Ports), string(b.Ports)) })
	return open
}

// indexFrom is the number of matches from which on an openingIndex pays.
const indexFrom = 32

// openingIndex finds openings and the entries of their By, so that a name with thousands
// of matches has no quadratic cost. The zero value searches linearly.
type openingIndex struct {
	ports map[PortSet]int
	by    map[openedBy]struct{}
}

type openedBy struct {
	ports PortSet
	by    string
}

// find returns the index in open of the match's port set, len(open) if there is none, and
// whether the match's By is new there.
func (x *openingIndex) find(open []Opening, m *Match) (at int, newBy bool) {
	if x.ports == nil {
		at = slices.IndexFunc(open, func(o Opening) bool { return o.Ports == m.Ports })
		if at < 0 {
			return len(open), true
		}
		return at, !slices.Contains(open[at].By, m.By())
	}
	at, known := x.ports[m.Ports]
	if !known {
		at = len(open)
		x.ports[m.Ports] = at
	}
	key := openedBy{m.Ports, m.By()}
	_, known = x.by[key]
	x.by[key] = struct{}{}
	return at, !known
}
