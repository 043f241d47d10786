package grants

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// moveSubjects prepares the addresses of a pod for a snapshot that comes. An address that is
// another pod's there gets no grant any more, and has none left. The caller holds mu.
func (t *Table) moveSubjects(p *podGrants, lost func(netip.Addr) bool) error {
	for _, s := range p.all() {
		if s.key.Rule == "" || !lost(s.subject) {
			continue
		}
		if err := t.end(slices.Collect(maps.Values(s.entries)))[s]; err != nil && !dataplane.IsNoSet(err) {
			return err
		}
		t.drop(s)
	}
	return nil
}

// setsOf yields the sets of a family of a target of a pod, and adds missing sets of rules to the table.
// The caller holds mu.
func (t *Table) setsOf(p *podGrants, pod policy.PodRef, to target, ipv6 bool) iter.Seq[*set] {
	return func(yield func(*set) bool) {
		for _, subject := range p.subjectsOf(to) {
			if subject.Is6() != ipv6 {
				continue
			}
			s := p.of[slot{to, subject}]
			if s == nil && to.rule != "" {
				s = t.newSet(dataplane.GrantSet{Pod: pod, Ports: to.ports, Rule: to.rule, Subject: subject, IPv6: ipv6})
				t.place(s)
			}
			if s != nil && !yield(s) {
				return
			}
		}
	}
}

// taking is a target that takes over the grants of a name by a view, with its matches: an answer for the name
// enters it now, or it denies the name, which may be an alias.
type taking struct {
	to     target
	by     []string
	denies bool
}

func takingOf(v *policy.View, name fqdn.Name) (all []taking) {
	for _, o := range v.Decide(name).Openings(0) {
		all = append(all, taking{target{o.Rule, o.Ports}, o.By, false})
	}
	if v.Ordered() {
		for _, m := range v.Denying(name) {
			all = append(all, taking{target{m.Rule.ID, m.Ports}, []string{m.By()}, true})
		}
	}
	return all
}

// takers yields the sets of a pod that take over a name of a set, with the matches:
// those that an answer for the name enters now, and any rule that denies a name that was
// denied, which may be an alias. An address that was only denied or passed is opened by no
// rule, and one that was only denied is passed by none. The caller holds mu.
func (t *Table) takers(p *podGrants, all []taking, from *dataplane.GrantSet) iter.Seq2[*set, []string] {
	return func(yield func(*set, []string) bool) {
		for _, of := range all {
			denied := from.Rule.Denies()
			if from.Rule.Lasting() && !of.to.rule.Lasting() || denied && !of.to.rule.Denies() || of.denies && !denied {
				continue
			}
			for s := range t.setsOf(p, from.Pod, of.to, from.IPv6) {
				if !yield(s, of.by) {
					return
				}
			}
		}
	}
}

// coming returns what takes over a grant that is not of the latest view, nil for others.
func (r *request) coming(latest *policy.View, g *policy.Grant) []taking {
	if g.View == latest || latest == nil {
		return nil
	}
	if r.takenView != latest || r.takenName != g.Name { // an answer has many grants
		r.takenView, r.takenName, r.taken = latest, g.Name, takingOf(latest, g.Name)
	}
	return r.taken
}

// stageComing adds an address to the sets that take it over in the view that comes, of which it may be
// too late for CarryOver.
func (t *Table) stageComing(r *request, p *podGrants, of []taking, g *policy.Grant, a netip.Addr, why reason) {
	from := dataplane.GrantSet{Pod: g.Pod, Rule: g.Rule, IPv6: a.Is6()}
	for s, by := range t.takers(p, of, &from) {
		if s.to != (target{g.Rule, g.Ports}) {
			r.waitFor(t.batch.stage(s, a, why.takenBy(by)))
		}
	}
}
