package policy

import (
	"cmp"
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

// Opening is one port set, or one rule of the tiers with an order, for which the addresses of
// an answer count, and for how long.
type Opening struct {
	Ports    PortSet
	Rule     RuleID // "" in the Namespace tier
	Lifetime time.Duration
	// By lists the matches, as "namespace/policy pattern". It may be shared and must
	// not be changed.
	By []string
}

// Openings returns the openings of the matches of enforcing policies, with the longest
// lifetime of an address that came with a TTL of ttl seconds: one per port set of the
// Namespace tier, and one per rule of the others. Rules that deny or pass come first, then
// they are sorted by port set; an unmatched or merely audited name opens nothing.
func (d Decision) Openings(ttl uint32) []Opening { return d.AppendOpenings(nil, ttl) }

// AppendOpenings is Openings into a slice that is empty and has room.
func (d Decision) AppendOpenings(open []Opening, ttl uint32) []Opening {
	var seen openingIndex
	if len(d.Matches) > indexFrom {
		seen = openingIndex{map[openingKey]int{}, map[openedBy]struct{}{}}
	}
	for _, m := range d.Matches {
		if m.Audit {
			continue
		}
		i, by := seen.find(open, m)
		if i == len(open) {
			open = append(open, Opening{m.Ports, m.ruleID(), m.lifetime(ttl), m.bys()})
			continue
		}
		open[i].Lifetime = max(open[i].Lifetime, m.lifetime(ttl))
		if by {
			open[i].By = append(open[i].By, m.By()) // a copy: the shared slice has no room
		}
	}
	slices.SortFunc(open, func(a, b Opening) int {
		return cmp.Or(compareBool(!a.Rule.Lasting(), !b.Rule.Lasting()), strings.Compare(string(a.Ports), string(b.Ports)), strings.Compare(string(a.Rule), string(b.Rule)))
	})
	return open
}

// lifetime returns how long an address counts for the match's rule.
func (m *Match) lifetime(ttl uint32) time.Duration {
	if m.accepts() {
		return m.TTL.Lifetime(ttl)
	}
	return m.TTL.Reuse
}

// indexFrom is the number of matches from which on an openingIndex pays.
const indexFrom = 32

// openingIndex finds openings and the entries of their By, so that a name with thousands
// of matches has no quadratic cost. The zero value searches linearly.
type openingIndex struct {
	openings map[openingKey]int
	by       map[openedBy]struct{}
}

type openingKey struct {
	ports PortSet
	rule  RuleID
}

type openedBy struct {
	openingKey
	by string
}

// find returns the index in open of the match's opening, len(open) if there is none, and
// whether the match's By is new there.
func (x *openingIndex) find(open []Opening, m *Match) (at int, newBy bool) {
	key := openingKey{m.Ports, m.ruleID()}
	if x.openings == nil {
		at = slices.IndexFunc(open, func(o Opening) bool { return o.Ports == key.ports && o.Rule == key.rule })
		if at < 0 {
			return len(open), true
		}
		return at, !slices.Contains(open[at].By, m.By())
	}
	at, known := x.openings[key]
	if !known {
		at = len(open)
		x.openings[key] = at
	}
	by := openedBy{key, m.By()}
	_, known = x.by[by]
	x.by[by] = struct{}{}
	return at, !known
}
