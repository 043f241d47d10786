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

// The rules of the tiers with an order have sets of their own: one for each address of the
// pod, from the first grant on, as the rules are many and their grants few.

// subjectsOf returns the addresses of a view's pod that sets of rules are for, none without
// ordered rules.
func subjectsOf(v *policy.View) []netip.Addr {
	if v == nil || !v.Ordered() {
		return nil
	}
	return v.Pod.IPs
}

// addOrdered adds the pods with ordered rules: these have no set yet.
func (t *Table) addOrdered(s *policy.Snapshot) {
	if s == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var pods map[policy.PodRef]*podGrants
	for _, v := range s.Views {
		if t.pod(v.Pod.PodRef) != nil || !v.Ordered() {
			continue
		}
		if pods == nil {
			pods = maps.Clone(*t.pods.Load())
		}
		pods[v.Pod.PodRef] = newPod()
	}
	if pods != nil {
		t.pods.Store(&pods)
	}
}

// setSubjects changes the addresses of a pod, and forgets a pod without sets and addresses.
// The caller holds mu.
func (t *Table) setSubjects(ref policy.PodRef, p *podGrants, subjects []netip.Addr) {
	mine := *p.sets.Load()
	mine.subjects = subjects
	if p.sets.Store(&mine); mine.empty() {
		pods := maps.Clone(*t.pods.Load())
		delete(pods, ref)
		t.pods.Store(&pods)
	}
}

// moveSubjects prepares the addresses of a pod for a snapshot that comes. An address that is
// another pod's there gets no grant any more, and has none left. The caller holds mu.
func (t *Table) moveSubjects(ref policy.PodRef, p *podGrants, coming *policy.Snapshot) error {
	lost := func(a netip.Addr) bool {
		owner, known := coming.Pod(a)
		return known && owner != ref
	}
	var subjects []netip.Addr
	for _, v := range p.views {
		for _, a := range subjectsOf(v) {
			if !slices.Contains(subjects, a) && !lost(a) {
				subjects = append(subjects, a)
			}
		}
	}
	mine := *p.sets.Load()
	mine.subjects = subjects
	p.sets.Store(&mine)
	for _, s := range mine.rules {
		if !lost(s.key.Subject) {
			continue
		}
		all := map[*set][]netip.Addr{s: slices.Collect(maps.Keys(s.entries))}
		if err := t.end(all)[s]; err != nil && !dataplane.IsNoSet(err) {
			return err
		}
		t.place(false, s)
		s.mu.Lock()
		clear(s.entries)
		s.mu.Unlock()
	}
	return nil
}

// setsOf returns the sets of a family of a rule of a pod, or of ports in the Namespace tier,
// and adds missing sets of rules to the table. The caller holds mu.
func (t *Table) setsOf(p *podGrants, key dataplane.GrantSet) (out []*set) {
	sets := p.sets.Load()
	if key.Rule == "" {
		if s := sets.byPorts[key.Ports][of(key.IPv6)]; s != nil {
			out = append(out, s)
		}
		return out
	}
	for _, subject := range sets.subjects {
		if subject.Is6() != key.IPv6 {
			continue
		}
		s := t.get(dataplane.GrantSet{Pod: key.Pod, Ports: key.Ports, Rule: key.Rule, Subject: subject, IPv6: key.IPv6})
		if s == nil {
			s = t.newSet(dataplane.GrantSet{Pod: key.Pod, Ports: key.Ports, Rule: key.Rule, Subject: subject, IPv6: key.IPv6})
			t.place(true, s)
		}
		out = append(out, s)
	}
	return out
}

// taking is what takes over the grants of a name by a view: what an answer for the name enters now,
// and the matches that deny it, which may be an alias.
type taking struct {
	openings []policy.Opening
	denying  []*policy.Match
}

func takingOf(v *policy.View, name fqdn.Name) *taking {
	of := &taking{openings: v.Decide(name).Openings(0)}
	if v.Ordered() {
		of.denying = v.Denying(name)
	}
	return of
}

// takers yields the sets of a pod that take over a name of a set, with the matches:
// those that an answer for the name enters now, and any rule that denies a name that was
// denied, which may be an alias. An address that was only denied or passed is opened by no
// rule, and one that was only denied is passed by none. The caller holds mu.
func (t *Table) takers(p *podGrants, of *taking, from dataplane.GrantSet) iter.Seq2[*set, []string] {
	return func(yield func(*set, []string) bool) {
		to := dataplane.GrantSet{Pod: from.Pod, IPv6: from.IPv6}
		each := func(id policy.RuleID, ports policy.PortSet, by []string) bool {
			if from.Rule.Lasting() && !id.Lasting() || from.Rule.Denies() && !id.Denies() {
				return true
			}
			to.Rule, to.Ports = id, ports
			for _, s := range t.setsOf(p, to) {
				if !yield(s, by) {
					return false
				}
			}
			return true
		}
		for _, o := range of.openings {
			if !each(o.Rule, o.Ports, o.By) {
				return
			}
		}
		if !from.Rule.Denies() {
			return
		}
		for _, m := range of.denying {
			if !each(m.Rule.ID, m.Ports, []string{m.By()}) {
				return
			}
		}
	}
}

// stageByRules adds one grant of a pod with ordered rules to the batch.
func (t *Table) stageByRules(r *request, p *podGrants, g *policy.Grant, why reason) error {
	coming := r.coming(p.latest.Load(), g)
	for _, a := range g.Addrs {
		key := dataplane.GrantSet{Pod: g.Pod, Ports: g.Ports, Rule: g.Rule, IPv6: a.Is6()}
		sets := t.setsOf(p, key)
		if len(sets) == 0 && (g.Rule == "" || len(p.sets.Load().subjects) == 0) {
			return noSet(g)
		}
		for _, s := range sets {
			r.waitFor(t.batch.stage(s, a, why))
		}
		t.stageComing(r, p, coming, key, a, why)
		t.outlast(p, a, r)
	}
	return nil
}

// coming returns what takes over a grant that is not of the latest view, nil for others.
func (r *request) coming(latest *policy.View, g *policy.Grant) *taking {
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
func (t *Table) stageComing(r *request, p *podGrants, of *taking, key dataplane.GrantSet, a netip.Addr, why reason) {
	if of == nil {
		return
	}
	for s, by := range t.takers(p, of, key) {
		if s.key.Rule != key.Rule || s.key.Ports != key.Ports {
			r.waitFor(t.batch.stage(s, a, why.takenBy(by)))
		}
	}
}

// Recover takes in grants of a set of a rule that another agent left in the kernel. A name
// that the pod's views do not allow is left out, once there are views. A grant of a lasting
// rule without a readable name stays; one of another rule has no name, so that TakeBack
// removes it.
func (t *Table) Recover(key dataplane.GrantSet, part []dataplane.Grant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.cfg.Clock.read()
	s := t.get(key)
	if s == nil {
		s = t.newSet(key)
		t.place(true, s)
	}
	p := t.pod(key.Pod)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range part {
		is := &part[i]
		reasons, whole := parseNames(is.Comment)
		if !whole && key.Rule.Lasting() {
			reasons = append(reasons, reason{name: unreadable})
		}
		g := s.entries[is.Addr].clone()
		g.noteUses(is.Uses, at.now)
		for _, r := range reasons {
			if len(p.views) > 0 && r.name != unreadable && !p.allowsName(r.name, key.Rule, key.Ports) {
				continue
			}
			if r.until = at.now + monotonic(is.Timeout-t.keeps(s)); key.Rule.Lasting() {
				r.until = max(r.until, at.now)
				g.addLasting(r, at.now)
			} else {
				r.renew, r.since = t.inUse != nil, ofEarlier
				g.add(r, at.now)
			}
		}
		if len(g.reasons) == 0 && len(p.views) > 0 {
			continue
		}
		same := t.render(s, is.Addr, g, at).Comment == is.Comment
		t.enqueue(s, is.Addr, g)
		s.put(is.Addr, g, same && !s.uncertain[is.Addr])
	}
}
