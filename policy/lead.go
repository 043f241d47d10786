package policy

import (
	"slices"
	"time"

	"github.com/namegate/namegate/policy/fqdn"
)

// Lead is a name that a decision counts for. It counts also for the names that the records of
// the answer point at.
type Lead struct {
	Name fqdn.Name
	// Alias: rules that deny alone count for the name.
	Alias bool
	// Lasting: a match that denies or passes covers the name, and does not cover what the name
	// leads to.
	Lasting bool
	// Lifetime is how long the name counts for others.
	Lifetime time.Duration
}

// longestLead bounds the time of a record: RFC 8767 §4 has resolvers keep none for longer.
const longestLead = 7 * 24 * time.Hour

// Leads returns the names that matches of enforcing policies cover, for records with a TTL of
// ttl seconds that point at to: each match is covered by one of them. A record of an accepted
// name counts for as long as the pod is told its addresses, another one for its TTL at least.
func (d *Decision) Leads(to fqdn.Name, ttl uint32) (leads []Lead) {
	accepted := map[fqdn.Name]time.Duration{}
	for _, m := range d.Matches {
		if !d.counts(m) {
			continue
		}
		n := d.name(m)
		i := slices.IndexFunc(leads, func(l Lead) bool { return l.Name == n })
		if i < 0 {
			i = len(leads)
			leads = append(leads, Lead{Name: n, Alias: n != d.Query.Name && !slices.Contains(d.Query.Via, n)})
		}
		lifetime := m.TTL.Lifetime(ttl) - m.TTL.Grace
		if m.Accepts() {
			accepted[n] = max(accepted[n], lifetime)
			continue
		}
		leads[i].Lasting = leads[i].Lasting || m.lastsFor(to)
		leads[i].Lifetime = max(leads[i].Lifetime, lifetime, min(time.Duration(ttl)*time.Second, longestLead))
	}
	for i := range leads {
		if until, ok := accepted[leads[i].Name]; ok {
			leads[i].Lifetime = until
		}
	}
	return leads
}

// LeadStays tells whether an enforcing rule covers the name of a lead to to still, and whether
// the lead is Lasting.
func (v *View) LeadStays(l Lead, to fqdn.Name) (stays, lasting bool) {
	lasts := func(m *Match) bool { return !m.Audit && m.lastsFor(to) }
	if l.Alias {
		denying := v.Denying(l.Name)
		return len(denying) > 0, slices.ContainsFunc(denying, lasts)
	}
	d := v.Decide(l.Name)
	return d.Counts(), slices.ContainsFunc(d.Matches, lasts)
}

// lastsFor tells whether the match denies or passes, and does not cover a name by itself.
func (m *Match) lastsFor(n fqdn.Name) bool { return !m.Accepts() && !m.Pattern.Matches(n) }
