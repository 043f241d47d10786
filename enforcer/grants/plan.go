package grants

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy"
)

// Holds implements dataplane.Grants.
func (t *Table) Holds(key dataplane.GrantSet) bool { return t.get(key) != nil }

// Adopt implements dataplane.Grants. A grant without a readable reason is taken in without
// one: TakeBack removes it, like every grant that no policy allows.
func (t *Table) Adopt() (take func(dataplane.GrantSet, []dataplane.Grant), hold func([]dataplane.GrantSet)) {
	at, taken := t.cfg.Clock.read(), map[string]*set{}
	get := func(key dataplane.GrantSet) *set {
		s := taken[key.Name]
		if s == nil {
			s = &set{key: key, table: t, entries: map[netip.Addr]*grant{}, past: newHistory()}
			taken[key.Name] = s
		}
		return s
	}
	take = func(key dataplane.GrantSet, part []dataplane.Grant) {
		s := get(key)
		for i := range part {
			s.entries[part[i].Addr] = newGrant(readGrant(&part[i], at))
		}
	}
	hold = func(keys []dataplane.GrantSet) {
		if len(keys) == 0 {
			return
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		ready := make([]*set, len(keys))
		for i, key := range keys {
			ready[i] = get(key)
			for a, g := range ready[i].entries {
				t.enqueue(ready[i], a, g)
			}
		}
		t.place(true, ready...)
	}
	return take, hold
}

// readGrant returns the reasons of a grant that another agent wrote. None lasts longer than
// the kernel keeps the grant.
func readGrant(g *dataplane.Grant, at reading) []reason {
	rs := parseComment(g.Comment, at.epoch)
	if g.Timeout > 0 {
		for i := range rs {
			rs[i].until = min(rs[i].until, at.now+monotonic(g.Timeout))
		}
	}
	return rs
}

// CarryOver lets grants be made under the views of the last snapshot and of the next one,
// and opens in the sets of a changed view the addresses that the pod's names had opened in
// its other sets, with the deadlines that they had. It returns the pods whose next view
// lacks a match of the last one, also with an error.
func (t *Table) CarryOver(last, next *policy.Snapshot) (narrowed []policy.PodRef, err error) {
	for ref, p := range *t.pods.Load() {
		was, is := last.ViewOf(ref), next.ViewOf(ref)
		if was == is {
			continue
		}
		if was != nil && is != nil && lacks(is, was) {
			narrowed = append(narrowed, ref)
		}
		if err := t.carry(p, was, is); err != nil {
			return narrowed, err
		}
	}
	return narrowed, nil
}

// opening is a match by which a view opens ports.
type opening struct {
	pattern string
	ports   policy.PortSet
	rule    policy.RuleID
}

// openings returns the openings of rules, of those of the Namespace tier alone where only
// they count.
func openings(rules []*policy.Rule, namespace bool) map[opening]bool {
	out := map[opening]bool{}
	for _, r := range rules {
		if namespace && r.Tier != policy.Namespace {
			continue
		}
		for _, m := range r.Matches {
			if !m.Audit {
				out[opening{m.Pattern.String(), m.Ports, r.ID}] = true
			}
		}
	}
	return out
}

// lacks tells whether a view lacks a match by which the last one opened ports. Most views
// differ in few rules, and an ID is of one rule.
func lacks(next, last *policy.View) bool {
	before, after := differing(last.Rules, next.Rules)
	gone, kept := openings(before, false), openings(after, false)
	maps.DeleteFunc(gone, func(o opening, _ bool) bool { return kept[o] })
	for o := range gone {
		if o.rule != "" {
			return true
		}
	}
	if len(gone) == 0 {
		return false
	}
	kept = openings(next.Rules, true)
	maps.DeleteFunc(gone, func(o opening, _ bool) bool { return kept[o] })
	return len(gone) > 0
}

// differing returns two lists without the rules that they begin and end with alike.
func differing(a, b []*policy.Rule) (ofA, ofB []*policy.Rule) {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return a, b
}

// carry is CarryOver for one pod.
func (t *Table) carry(p *podGrants, last, next *policy.View) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	p.changed = true
	p.views = slices.DeleteFunc([]*policy.View{last, next}, func(v *policy.View) bool { return v == nil })
	if next == nil {
		return nil
	}
	// others calls to for each reason in a set that next grants on other port sets too.
	others := func(s *set, rs []reason, to func(*set, reason)) {
		for _, r := range rs {
			for _, o := range next.Decide(r.name).Openings(0) {
				if other := (*p.sets.Load())[o.Ports][of(s.key.IPv6)]; other != nil && other != s {
					to(other, reason{r.name, r.until, matchesOf(o.By)})
				}
			}
		}
	}
	t.batch.begin(t.cfg.Clock.read())
	for s := range p.all() {
		for a, g := range s.entries {
			others(s, g.reasons, func(to *set, r reason) { t.batch.stage(to, a, r) })
		}
	}
	t.writeBatch()
	for i := range t.batch.sets {
		if err := t.batch.sets[i].err; err != nil {
			return err
		}
	}
	for s := range p.all() {
		for a, rs := range s.past.reasons {
			others(s, rs, func(to *set, r reason) {
				to.mu.Lock()
				defer to.mu.Unlock()
				to.past.remember(a, []reason{r})
			})
		}
	}
	return nil
}

// TakeBack takes back the grants of a pod that view does not allow, and releases the sets
// whose ports the plan does not ask any more: the caller gives them up in the dataplane.
// closing is called before addresses are closed. closed tells whether an address, open
// before or remembered, has no reason left. Both results count after an error too.
func (t *Table) TakeBack(pod policy.PodRef, view *policy.View, ports []policy.PortSet, closing func() error) (closed bool, released []dataplane.GrantSet, err error) {
	p := t.pod(pod)
	if p == nil {
		return false, nil, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.changed {
		p.views = slices.DeleteFunc([]*policy.View{view}, func(v *policy.View) bool { return v == nil })
	}
	for s := range p.all() {
		keep := slices.Contains(ports, s.key.Ports)
		if keep && !p.changed {
			continue
		}
		gone, err := t.takeBack(s, view, keep, closing)
		if closed = closed || gone; err != nil {
			return closed, released, err
		}
		if !keep {
			t.place(false, s)
			released = append(released, s.key)
		}
	}
	p.changed = false
	return closed, released, nil
}

// takeBack removes from a set the reasons that a view does not allow, and the addresses
// that are left without one. Where the last reason to end is gone, the address ends
// earlier. The table follows the kernel: after an error it still holds the grants to be
// taken back, uncertain. Without keep the set is released as a whole, and nothing of it is
// written. The caller holds mu.
func (t *Table) takeBack(s *set, view *policy.View, keep bool, closing func() error) (closed bool, err error) {
	denied := func(r reason) bool { return !keep || !viewAllows(view, r.name, s.key.Ports) }
	at := t.cfg.Clock.read()
	if view != nil {
		t.report(s, denied, at)
	}
	var touched []netip.Addr
	left := map[netip.Addr]*grant{}
	var gone, shorter []dataplane.Grant
	for a, g := range s.entries {
		kept := slices.DeleteFunc(slices.Clone(g.reasons), denied)
		if len(kept) > 0 && len(kept) == len(g.reasons) {
			continue
		}
		touched = append(touched, a)
		if len(kept) == 0 {
			gone = append(gone, dataplane.Grant{Addr: a})
			continue
		}
		c := &grant{queued: g.queued, reasons: kept}
		left[a] = c
		shorter = append(shorter, t.render(a, c, at))
	}
	if len(gone) > 0 {
		if err := closing(); err != nil {
			return false, err
		}
	}
	s.markAllUncertain(touched)
	if keep {
		if err := t.apply(s, true, gone); err != nil {
			return false, err
		}
		if err := t.apply(s, false, shorter); err != nil {
			return false, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range gone {
		s.remove(g.Addr)
	}
	for a, g := range left {
		t.enqueue(s, a, g)
		s.put(a, g, true)
	}
	pruned := s.past.prune(denied)
	return len(gone)+pruned > 0, nil
}

// TakeOver adds the kernel's grants that another agent wrote to the table, and removes
// those that no policy allows. Grants that come or go after the listing are this agent's.
func (t *Table) TakeOver() error {
	held := map[string][]dataplane.Grant{}
	var keys []dataplane.GrantSet
	for s := range t.all() {
		keys = append(keys, s.key)
	}
	err := t.cfg.Kernel.ListGrants(keys, func(key dataplane.GrantSet, part []dataplane.Grant) {
		held[key.Name] = append(held[key.Name], part...)
	})
	if err != nil {
		return err
	}
	for _, p := range *t.pods.Load() {
		for s := range p.all() {
			if err := t.takeOver(p, s, held[s.key.Name]); err != nil {
				return err
			}
		}
	}
	return nil
}

// takeOver is TakeOver for one set of a pod. The other agent may have granted by a coming
// snapshot too.
func (t *Table) takeOver(p *podGrants, s *set, there []dataplane.Grant) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.cfg.Clock.read()
	var surplus, unlike []dataplane.Grant
	later := map[netip.Addr]*grant{}
	for i := range there {
		is := &there[i]
		g, changed := s.entries[is.Addr].clone(), false
		for _, r := range readGrant(is, at) {
			if p.allowsName(r.name, s.key.Ports) && g.add(r, at.now) {
				changed = true
			}
		}
		switch {
		case len(g.reasons) == 0:
			surplus = append(surplus, dataplane.Grant{Addr: is.Addr})
		case changed:
			later[is.Addr] = g
		}
		if want := t.render(is.Addr, g, at); len(g.reasons) > 0 && want.Comment != is.Comment && !s.uncertain[is.Addr] {
			unlike = append(unlike, want)
		}
	}
	if err := t.apply(s, true, surplus); err != nil {
		return err
	}
	// A grant has the reasons of the agent that wrote it last alone.
	if err := t.apply(s, false, unlike); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for a, g := range later {
		t.enqueue(s, a, g)
		s.put(a, g, !s.uncertain[a])
	}
	return nil
}
