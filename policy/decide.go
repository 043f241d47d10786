package policy

import (
	"slices"

	"github.com/namegate/namegate/policy/fqdn"
)

// Query is one question of DNS as evaluation sees it.
type Query struct {
	Name fqdn.Name
	// Via are the names that led the pod to Name: they count as well.
	Via []fqdn.Name
	// Aliases count for rules that deny: those of the checked chain of the answer, none before
	// there is an answer, and those that led the pod to Name.
	Aliases []fqdn.Name
	// InCluster: the name is under the cluster's domain. Then Outside decides about its addresses
	// that are not the cluster's: the names count for rules that deny alone.
	InCluster, Outside bool
	// Type is the type of the query, RFC 1035 §3.2.3; 0: the limit of types is not applied.
	Type uint16
	// Would decides as if the Audit policies of the view enforced.
	Would bool
}

// Leave returns the query about the name outside the cluster domain to which the answer for a name
// inside leads, by the names on the way. It is decided in place of the name inside: tenants write
// such names, and they count for rules that deny alone.
func (q Query) Leave(to fqdn.Name, way ...fqdn.Name) Query {
	return Query{Name: to, Aliases: slices.Concat(q.Aliases, q.Via, []fqdn.Name{q.Name}, way), Type: q.Type, Would: q.Would}
}

// Decide returns the matches of a view that cover a question, and the reply that they
// select. It is the one evaluation of questions.
func Decide(v *View, q Query) (d Decision) {
	if d.Query = q; v.Ordered() || len(q.Via) > 0 {
		v.decideInOrder(&d)
		return d
	}
	d.Matches, d.Over = v.match(q.Name)
	if !q.InCluster && !d.Allowed() {
		d.Reply = v.Unmatched
	}
	d.limited(DNSLimits{}, v.Limits)
	return d
}

// DecideAddresses is Decide for a query for the addresses of a name: for type A, or for type
// AAAA where type A is withheld.
func DecideAddresses(v *View, q Query) Decision {
	q.Type = TypeA
	d := Decide(v, q)
	if d.Limit == LimitTypes {
		q.Type = TypeAAAA
		d = Decide(v, q)
	}
	return d
}

// Decide is Decide for a question before its answer.
func (v *View) Decide(n fqdn.Name) *Decision {
	d := Decide(v, Query{Name: n})
	return &d
}

// Covers tells whether an enforcing rule of the view covers a name by itself, whatever the
// rules before it are: the rule with the ID, or one of the Namespace tier on the ports.
func (v *View) Covers(n fqdn.Name, id RuleID, ports PortSet) bool {
	return CoveredBy(v.Covering(n), id, ports)
}

// Covering returns the matches that cover a name by themselves and count, whatever the rules before
// them are. It is shared and must not be changed.
func (v *View) Covering(n fqdn.Name) []*Match {
	if v == nil {
		return nil
	}
	matches, _ := v.match(n)
	return matches
}

// CoveredBy is Covers for what Covering returned.
func CoveredBy(matches []*Match, id RuleID, ports PortSet) bool {
	return slices.ContainsFunc(matches, func(m *Match) bool { return !m.Audit && m.ID == id && m.Ports == ports })
}

// Denying returns the matches of rules in force that deny and cover a name by themselves,
// whatever the rules before them are.
func (v *View) Denying(n fqdn.Name) (out []*Match) {
	matches, _ := v.match(n)
	for _, m := range matches {
		if m.ID.Denies() && !m.Audit && (m.Rule.Tier != Baseline || !v.tiers(false).isolated) {
			out = append(out, m)
		}
	}
	return out
}

// match returns the matches that cover a name and count, and whether others are left out beyond
// MaxOpenings.
func (v *View) match(n fqdn.Name) (all []*Match, over bool) {
	all, over = v.Index.match(n)
	all = slices.Clip(all)
	own := len(all)
	for _, x := range v.Cluster {
		more, overToo := x.match(n)
		all, over = append(all, more...), over || overToo
	}
	if cluster := all[own:]; len(v.Cluster) > 1 && len(cluster) > MaxOpenings {
		slices.SortFunc(cluster, inOrder)
		kept := withinOpenings(cluster)
		all, over = all[:own+len(kept)], over || len(kept) < len(cluster)
	}
	if v.closed != nil {
		all = slices.DeleteFunc(all, func(m *Match) bool { return v.closed[m.ID] })
	}
	return all, over
}

// withinOpenings returns the matches that count of those of cluster policies, which are in order, in
// the same slice.
func withinOpenings(matches []*Match) (kept []*Match) {
	kept = matches[:0]
	var last *Rule
	var count [2]int // of rules that accept, of Audit policies last
	for _, m := range matches {
		of := 0
		if m.Audit {
			of = 1
		}
		if m.Accepts() {
			if m.Rule != last {
				count[of]++
			}
			if last = m.Rule; count[of] > MaxOpenings {
				continue
			}
		}
		kept = append(kept, m)
	}
	return kept
}

// decideInOrder walks the tiers: Admin, then Namespace or else Baseline.
func (v *View) decideInOrder(d *Decision) {
	q := &d.Query
	covers, over := v.covers(q)
	t := v.tiers(q.Would)
	d.Over, d.Audits = over, !q.Would && t != v.tiers(true)
	second, strict, limits := Baseline, v.BaselineUnmatched, v.BaselineLimits
	if t.isolated || t.empty {
		second, strict, limits = Namespace, v.Unmatched, v.Limits
	}
	final := d.walk(Admin, covers)
	if d.Denied != nil {
		return
	}
	if unmatched := v.AdminUnmatched; final {
		d.Reply, limits = unmatched, DNSLimits{}
	} else {
		d.walk(second, covers)
		if d.Denied != nil {
			return
		}
		d.Reply = max(unmatched, strict)
	}
	if d.Allowed() || q.InCluster {
		d.Reply = Resolve
	}
	if i := slices.IndexFunc(d.Matches, func(m *Match) bool { return m.Rule.Action == Deny && m.Rule.Ports == AnyPort }); i >= 0 && !d.Allowed() {
		d.Denied, d.Reply = d.Matches[i], Resolve
	}
	d.limited(v.AdminLimits, limits)
}

// walk takes in those matches of one tier that cover the question, in order. It returns true
// where no port reaches the next tier. Denied is set where the question is not asked.
func (d *Decision) walk(tier Tier, covers []*Match) (final bool) {
	passed := false
	for len(covers) > 0 {
		r := covers[0].Rule
		n := slices.IndexFunc(covers, func(m *Match) bool { return m.Rule != r })
		if n < 0 {
			n = len(covers)
		}
		own := covers[:n:n]
		covers = covers[n:]
		switch {
		case r.Tier != tier:
			continue
		case tier != Namespace && r.Audit && !d.Query.Would:
			d.Audits = true
			continue
		case tier == Namespace: // a union, without a stop
			d.Matches = append(d.Matches, own...)
			continue
		case r.refuses() && !slices.ContainsFunc(d.Matches, notDeny):
			d.Matches, d.Denied, d.Reply = own, own[0], r.DNSDenied
			return true
		}
		d.Matches = append(d.Matches, own...)
		passed = passed || r.Action == Pass
		if r.Ports == AnyPort {
			return r.Action != Pass && !passed
		}
	}
	return false
}

func notDeny(m *Match) bool { return m.Rule.Action != Deny }

// covers returns the matches that cover a question and count, in the order of their rules, and whether
// others are left out.
func (v *View) covers(q *Query) (covers []*Match, over bool) {
	add := func(n fqdn.Name, aliases bool) {
		matches, overToo := v.match(n)
		over = over || overToo
		for _, m := range matches {
			if r := m.Rule; !r.Broken && (!aliases || r.Action == Deny) {
				covers = append(covers, m)
			}
		}
	}
	add(q.Name, q.Outside)
	for _, n := range q.Via {
		add(n, q.Outside)
	}
	for _, a := range q.Aliases {
		add(a, true)
	}
	slices.SortFunc(covers, inOrder)
	return slices.Compact(covers), over
}
