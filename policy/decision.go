package policy

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/namegate/namegate/policy/fqdn"
)

// Decision is the result of the evaluation of one question.
type Decision struct {
	Query Query // the question
	// Matches are in the order of policy name, then of the matches in the policy,
	// including Audit policies; nil means unmatched. It is shared and must not be
	// changed.
	Matches []*Match
	// Over: further rules that accept cover the question and are left out, see MaxOpenings.
	Over bool
	// Audits: in order, Audit policies would decide too if they were enforced. Those of the
	// Namespace tier are in Matches.
	Audits bool
	// Denied is the match of a Deny rule that decided, nil for none.
	Denied *Match
	// Reply is the kind of reply: Resolve for the answer. The proxy may still answer a
	// name that the pod's resolver completed.
	Reply Unmatched
	// Limit is the limit by which the question is not answered. Then Reply is its reply, and
	// no address is opened, whatever the matches are.
	Limit Limit
	// Rate limits the queries that the node sends for such questions of the pod.
	Rate ZoneRate
	// Limits are those of the tiers that the question reaches.
	Limits DNSLimits
}

// Allowed tells whether a match of an enforcing policy accepts.
func (d *Decision) Allowed() bool {
	for _, m := range d.Matches {
		if d.counts(m) && m.Accepts() {
			return true
		}
	}
	return false
}

// Checks tells whether connections to a name are checked: a rule with ServerName accepts it on ports on which no rule
// without comes first.
func (d *Decision) Checks() bool {
	for i, m := range d.Matches {
		if !m.ServerName || !d.counts(m) {
			continue
		}
		plain := false
		for j, o := range d.Matches {
			first := j < i || o.Rule.Tier == Namespace && m.Rule.Tier == Namespace
			plain = plain || first && o.Accepts() && !o.ServerName && d.counts(o) && o.Ports.covers(m.Ports)
		}
		if !plain {
			return true
		}
	}
	return false
}

// Audited tells whether matches exist, and only of Audit policies.
func (d *Decision) Audited() bool {
	return len(d.Matches) > 0 && !d.Allowed()
}

// Counts tells whether the addresses of an answer count for a rule of an enforcing policy,
// whatever its action is.
func (d *Decision) Counts() bool {
	for _, m := range d.Matches {
		if d.counts(m) {
			return true
		}
	}
	return false
}

// counts tells whether a match is of an enforcing policy.
func (d *Decision) counts(m *Match) bool { return d.Query.Would || !m.Audit }

// CountsFor returns the name for which the addresses of an answer count: the name that is
// denied, else one that is accepted, else one that an enforcing match covers. It is the
// question's where that is one, else that of the first match, the question's for none.
func (d *Decision) CountsFor() fqdn.Name {
	if d.Denied != nil {
		return d.name(d.Denied)
	}
	allowed, first := d.Allowed(), d.Query.Name
	for _, m := range slices.Backward(d.Matches) {
		if !d.counts(m) || m.Accepts() != allowed {
			continue
		}
		if first = d.name(m); first == d.Query.Name {
			return first
		}
	}
	return first
}

// name returns the name that a match covers by itself, the question's if it does.
func (d *Decision) name(m *Match) fqdn.Name {
	q := &d.Query
	if len(q.Via) == 0 && len(q.Aliases) == 0 || m.Pattern.Matches(q.Name) {
		return q.Name
	}
	if i := slices.IndexFunc(q.Via, m.Pattern.Matches); i >= 0 {
		return q.Via[i]
	}
	return q.Aliases[max(0, slices.IndexFunc(q.Aliases, m.Pattern.Matches))]
}

// LongestTTL returns the longest TTL of an address that is open for at least that long in
// each port set, and for each rule, that the decision opens.
func (d *Decision) LongestTTL() time.Duration {
	least := time.Duration(math.MaxInt64)
	for _, m := range d.Matches {
		if !d.counts(m) || !m.Accepts() || m.TTL.Max >= least {
			continue
		}
		longest := m.TTL.Max
		for _, o := range d.Matches {
			if o.Ports == m.Ports && o.ID == m.ID && d.counts(o) && o.Accepts() {
				longest = max(longest, o.TTL.Max)
			}
		}
		least = min(least, longest)
	}
	return least
}

// Opening is one port set, or one rule of the tiers with an order, for which the addresses of
// an answer count, and for how long.
type Opening struct {
	// Name is the name that the matches cover by themselves.
	Name     fqdn.Name
	Ports    PortSet
	Rule     RuleID // see Rule.ID
	Lifetime time.Duration
	// Reuse is how long after the last answer that held an address a connection may keep it
	// open, 0 where the use of an address does not renew it.
	Reuse time.Duration
	// By lists the matches, as "namespace/policy pattern", sorted. It may be shared and
	// must not be changed.
	By []string
}

// Openings returns the openings of the matches of enforcing policies, with the longest
// lifetime of an address that came with a TTL of ttl seconds: one per port set of the
// Namespace tier, and one per rule with an ID, for each name that is covered. Rules that deny or pass come first, then
// they are sorted by port set; an unmatched or merely audited name opens nothing.
func (d *Decision) Openings(ttl uint32) []Opening { return d.AppendOpenings(nil, ttl) }

// AppendOpenings is Openings into a slice that is empty and has room.
func (d *Decision) AppendOpenings(open []Opening, ttl uint32) []Opening {
	for _, m := range d.Matches {
		if !m.Audit {
			open = append(open, Opening{d.name(m), m.Ports, m.ID, m.lifetime(ttl), m.reuse(), m.bys()})
		}
	}
	slices.SortFunc(open, func(a, b Opening) int { return cmp.Or(a.compare(&b), strings.Compare(a.By[0], b.By[0])) })
	merged := open[:0]
	for _, o := range open {
		last := len(merged) - 1
		if last < 0 || merged[last].compare(&o) != 0 {
			merged = append(merged, o)
			continue
		}
		m := &merged[last]
		m.Lifetime, m.Reuse = max(m.Lifetime, o.Lifetime), max(m.Reuse, o.Reuse)
		if m.By[len(m.By)-1] != o.By[0] {
			m.By = append(m.By, o.By[0]) // a copy: the shared slice has no room
		}
	}
	return merged
}

// compare orders openings: 0 for two matches of the same one.
func (o *Opening) compare(p *Opening) int {
	return cmp.Or(CompareBool(!o.Rule.Lasting(), !p.Rule.Lasting()), strings.Compare(string(o.Ports), string(p.Ports)), strings.Compare(string(o.Rule), string(p.Rule)), strings.Compare(string(o.Name), string(p.Name)))
}

// lifetime returns how long an address counts for the match's rule. A rule that denies or
// passes counts for Reuse after the answer's end: so the deadline is the same as often as a
// cached answer is given.
func (m *Match) lifetime(ttl uint32) time.Duration {
	if m.Accepts() {
		return m.TTL.Lifetime(ttl)
	}
	return m.TTL.Lifetime(ttl) - m.TTL.Grace + m.TTL.Reuse
}

// reuse is the Reuse of the match's opening.
func (m *Match) reuse() time.Duration {
	if !m.Accepts() || m.TTL.InUse != Renew {
		return 0
	}
	return m.TTL.Reuse
}
