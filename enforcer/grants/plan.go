package grants

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// Holds implements dataplane.Grants.
func (t *Table) Holds(key dataplane.GrantSet) bool { return t.get(key) != nil }

// Adopt implements dataplane.Grants. A grant without a readable reason is taken in without
// one: TakeBack removes it, like every grant that no policy allows.
func (t *Table) Adopt() (take func(dataplane.GrantSet, []dataplane.Grant), hold func([]dataplane.GrantSet)) {
	at, taken := t.cfg.Clock.read(), map[dataplane.GrantSet]*set{}
	get := func(key dataplane.GrantSet, size int) *set {
		s := taken[key]
		if s == nil {
			s = t.newSet(key)
			s.entries = make(map[netip.Addr]*grant, size)
			taken[key] = s
		}
		return s
	}
	take = func(key dataplane.GrantSet, part []dataplane.Grant) {
		s := get(key, len(part))
		for i := range part {
			g := newGrant(t.readGrant(s, &part[i], at))
			g.noteUses(part[i].Uses, at.now)
			s.entries[part[i].Addr] = g
		}
	}
	hold = func(keys []dataplane.GrantSet) {
		if len(keys) == 0 {
			return
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		ready, grants := make([]*set, len(keys)), 0
		for i, key := range keys {
			ready[i] = get(key, 0)
			grants += len(ready[i].entries)
		}
		t.deadlines.grow(grants)
		for _, s := range ready {
			for a, g := range s.entries {
				t.enqueue(s, a, g)
			}
		}
		t.place(true, ready...)
	}
	return take, hold
}

// TakeBack takes back the grants of a pod that view does not allow, and releases the sets
// that the plan does not ask any more: the caller gives those without a rule up in the
// dataplane. Grants of lasting rules go last. closing is called before addresses are closed.
// closed tells whether an address, open before or remembered, has no reason left. Both
// results count after an error too.
func (t *Table) TakeBack(pod policy.PodRef, view *policy.View, asked func(dataplane.GrantSet) bool, closing func() error) (closed bool, released []dataplane.GrantSet, err error) {
	p := t.pod(pod)
	if p == nil {
		return false, nil, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	covers := coverage{view: view}
	if p.changed {
		t.setViews(p, slices.DeleteFunc([]*policy.View{view}, func(v *policy.View) bool { return v == nil }))
		t.setSubjects(pod, p, subjectsOf(view))
		t.mu.Unlock()
		covers.look(p)
		t.mu.Lock()
	}
	sets := slices.SortedFunc(p.all(), func(a, b *set) int {
		return cmp.Compare(lastingLast(a), lastingLast(b))
	})
	for _, s := range sets {
		keep := asked(s.key)
		if keep && !p.changed {
			continue
		}
		// What holds other sets too stays, without the grants of this one.
		stays := keep || s.key.Rule != "" || slices.ContainsFunc(sets, func(o *set) bool { return o.key.Name == s.key.Name && asked(o.key) })
		gone, err := t.takeBack(s, &covers, keep, stays, closing)
		if closed = closed || gone; err != nil {
			return closed, released, err
		}
		if !keep {
			t.place(false, s)
			if s.key.Rule == "" {
				released = append(released, s.key)
			}
		}
		t.mu.Unlock() // the table is free for others after each set
		t.mu.Lock()
	}
	p.changed = false
	return closed, released, nil
}

func lastingLast(s *set) int {
	if s.key.Rule.Lasting() {
		return 1
	}
	return 0
}

// coverage is the matches of a view that cover names, each looked up once.
type coverage struct {
	view *policy.View
	of   map[fqdn.Name][]*policy.Match
}

// look looks up all names of a pod. The caller does not hold mu.
func (c *coverage) look(p *podGrants) {
	for _, s := range p.sources(false) {
		c.matches(s.name)
	}
}

func (c *coverage) matches(name fqdn.Name) []*policy.Match {
	found, known := c.of[name]
	if !known {
		if c.of == nil {
			c.of = map[fqdn.Name][]*policy.Match{}
		}
		found = c.view.Covering(name)
		c.of[name] = found
	}
	return found
}

// has tells whether the view covers a name of a set.
func (c *coverage) has(name fqdn.Name, key dataplane.GrantSet) bool {
	return policy.CoveredBy(c.matches(name), key.Rule, key.Ports)
}

// takeBack removes from a set the reasons that a view does not allow, and the addresses
// that are left without one. Where the last reason to end is gone, the address ends
// earlier, but for a lasting rule. The table follows the kernel: after an error it still holds
// the grants to be taken back, uncertain. Without keep the set is released as a whole, and
// nothing of it is written unless the kernel's object stays. The caller holds mu.
func (t *Table) takeBack(s *set, covers *coverage, keep, stays bool, closing func() error) (closed bool, err error) {
	denied := func(r reason) bool {
		return !keep || r.name != unreadable && !covers.has(r.name, s.key)
	}
	at := t.cfg.Clock.read()
	report := func(a netip.Addr, reasons []reason) {
		if covers.view != nil {
			t.report(s, a, reasons, denied, at)
		}
	}
	var touched []netip.Addr
	left := map[netip.Addr]*grant{}
	var gone, shorter []dataplane.Grant
	for a, g := range s.entries {
		if len(g.reasons) > 0 && !slices.ContainsFunc(g.reasons, denied) {
			continue
		}
		report(a, g.reasons)
		kept := slices.DeleteFunc(slices.Clone(g.reasons), denied)
		touched = append(touched, a)
		if len(kept) == 0 {
			gone = append(gone, dataplane.Grant{Addr: a})
			continue
		}
		c := &grant{queued: g.queued, uses: g.uses, used: g.used, reasons: kept}
		if s.key.Rule.Lasting() {
			c.extend(max(g.until(), at.now+monotonic(s.key.Rule.Reuse())))
		}
		left[a] = c
		shorter = append(shorter, t.render(s, a, c, at))
	}
	for a, reasons := range s.past.reasons {
		report(a, reasons)
	}
	if len(gone) > 0 {
		if err := closing(); err != nil {
			return false, err
		}
	}
	s.markAllUncertain(touched)
	if stays {
		if err := t.apply(s, true, gone); err != nil && (keep || !dataplane.IsNoSet(err)) {
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
// those that no policy allows, but for grants of rules. Grants that come or go after the listing are this agent's.
func (t *Table) TakeOver() error {
	held := map[dataplane.GrantSet][]dataplane.Grant{}
	var keys []dataplane.GrantSet
	for s := range t.all() {
		if s.key.Rule == "" {
			keys = append(keys, s.key)
		}
	}
	err := t.cfg.Kernel.ListGrants(keys, func(key dataplane.GrantSet, part []dataplane.Grant) {
		held[key] = append(held[key], part...)
	})
	if err != nil {
		return err
	}
	for _, p := range *t.pods.Load() {
		for s := range p.all() {
			if s.key.Rule != "" {
				continue // Recover takes them over
			}
			if err := t.takeOver(p, s, held[s.key]); err != nil {
				return err
			}
		}
	}
	return t.removeUnknown(held)
}

// removeUnknown removes grants of sets that the table does not have.
func (t *Table) removeUnknown(held map[dataplane.GrantSet][]dataplane.Grant) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var ops []dataplane.GrantOp
	for key, grants := range held {
		if t.get(key) == nil {
			ops = append(ops, dataplane.GrantOp{Set: key, Remove: true, Grants: grants})
		}
	}
	if len(ops) == 0 {
		return nil
	}
	t.cfg.Kernel.ApplyGrants(ops)
	for i := range ops {
		if err := ops[i].Err; err != nil && !dataplane.IsNoSet(err) {
			return err
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
		g, changed := cmp.Or(later[is.Addr], s.entries[is.Addr]).clone(), false
		for _, r := range t.readGrant(s, is, at) {
			if p.allowsName(r.name, "", s.key.Ports) && g.add(r, at.now) {
				changed = true
			}
		}
		switch {
		case len(g.reasons) == 0:
			surplus = append(surplus, dataplane.Grant{Addr: is.Addr})
		case changed:
			later[is.Addr] = g
		}
		want := t.render(s, is.Addr, g, at)
		if len(g.reasons) > 0 && want.Comment != is.Comment && !s.uncertain[is.Addr] {
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
