package grants

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// TakeBack takes back the grants of a pod that view does not allow, and releases the sets
// that the plan does not ask any more. Grants of lasting rules go last. closing is called before
// addresses are closed. closed tells whether an address, open before or remembered, has no reason left,
// also with an error.
func (t *Table) TakeBack(pod policy.PodRef, view *policy.View, asked func(dataplane.GrantSet) bool, closing func() error) (closed bool, err error) {
	p := t.pod(pod)
	if p == nil {
		return false, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	covers := coverage{view: view, of: map[fqdn.Name][]*policy.Match{}}
	if p.changed {
		t.setViews(p, []*policy.View{view}, func(netip.Addr) bool { return false })
		t.mu.Unlock()
		names := map[fqdn.Name]bool{} // decided without mu, for which the writer of all pods may wait
		for _, s := range p.all() {
			s.mu.RLock()
			s.eachName(func(_ netip.Addr, name fqdn.Name, _ bool) { names[name] = true })
			s.mu.RUnlock()
		}
		for name := range names {
			covers.matches(name)
		}
		t.mu.Lock()
	}
	sets := slices.Clone(p.sets)
	slices.SortStableFunc(sets, func(a, b *set) int { return cmp.Compare(a.kind(), b.kind()) })
	for _, s := range sets {
		keep := asked(s.key)
		if keep && !p.changed {
			continue
		}
		// What holds other sets too stays, without the grants of this one.
		stays := keep || s.key.Rule != "" || slices.ContainsFunc(sets, func(o *set) bool { return o.key.Name == s.key.Name && asked(o.key) })
		gone, err := t.takeBack(s, &covers, keep, stays, closing)
		if closed = closed || gone; err != nil {
			return closed, err
		}
		if !keep {
			t.drop(s)
		}
		t.mu.Unlock() // the table is free for others after each set
		t.mu.Lock()
	}
	p.changed = false
	p.past.compact()
	if len(p.views)+len(p.sets) == 0 {
		pods := maps.Clone(*t.pods.Load())
		delete(pods, pod)
		t.pods.Store(&pods)
	}
	return closed, nil
}

// coverage is the matches of a view that cover names, each looked up once.
type coverage struct {
	view *policy.View
	of   map[fqdn.Name][]*policy.Match
}

// matches returns the matches of the view that cover a name.
func (c *coverage) matches(name fqdn.Name) []*policy.Match {
	found, known := c.of[name]
	if !known {
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
	report := func(a netip.Addr, all reasons) {
		for i := range all {
			if t.takenBack != nil && covers.view != nil && all[i].name != unreadable && denied(all[i]) {
				t.takenBack(s.info(a, &all[i], at))
			}
		}
	}
	var gone, left []*grant
	var removed, shorter []dataplane.Grant
	for _, g := range s.entries {
		if all := g.reasons(); len(all) > 0 && !slices.ContainsFunc(all, denied) {
			continue
		}
		a := g.address()
		report(a, g.reasons())
		next := s.copyOf(a)
		if next.setReasons(slices.DeleteFunc(next.reasons(), denied)); len(next.reasons()) == 0 {
			gone, removed = append(gone, g), append(removed, dataplane.Grant{Addr: a})
			continue
		}
		if s.key.Rule.Lasting() {
			next.extend(max(g.until(), at.now+monotonic(s.key.Rule.Reuse())))
		}
		left, shorter = append(left, next), append(shorter, t.render(next, at))
	}
	for a, all := range s.past {
		report(a, all)
	}
	if len(gone) > 0 {
		if err := closing(); err != nil {
			return false, err
		}
	}
	for _, g := range slices.Concat(gone, left) {
		g.doubt()
	}
	if stays {
		if err := t.apply(s.key, true, removed); err != nil && (keep || !dataplane.IsNoSet(err)) {
			return false, err
		}
		if err := t.apply(s.key, false, shorter); err != nil {
			return false, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range gone {
		s.remove(g)
	}
	for _, g := range left {
		s.put(g, true)
	}
	return len(gone)+s.forget(denied) > 0, nil
}
