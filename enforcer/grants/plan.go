package grants

import (
	"cmp"
	"fmt"
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

// CarryOver lets grants be made under the views of the last snapshot and of the next one,
// and opens in the sets of a changed view the addresses that the pod's names had opened in
// its other sets, with the deadlines that they had. Rules that deny or pass take over the
// names of all sets, rules that accept only those of others that do. An address that is
// another pod's in the next snapshot leaves no grant of a rule behind.
func (t *Table) CarryOver(last, next *policy.Snapshot) (c Carried, err error) {
	t.addOrdered(next)
	var d difference
	c.Refused = map[policy.PodRef]map[policy.RuleID]string{}
	for ref, p := range *t.pods.Load() {
		was, is := last.ViewOf(ref), next.ViewOf(ref)
		denies, err := t.carry(ref, p, was, is, next, &c)
		if denies || was != nil && is != nil && d.lacks(is, was) {
			c.Narrowed = append(c.Narrowed, ref)
		}
		if err != nil {
			return c, err
		}
	}
	return c, nil
}

// Carried is the result of a CarryOver, also with an error.
type Carried struct {
	// Narrowed are the pods whose next view lacks a match of the last one, or denies or passes more
	// addresses.
	Narrowed []policy.PodRef
	// Refused are the rules that deny or pass with addresses that could not be written, with the
	// reasons.
	Refused map[policy.PodRef]map[policy.RuleID]string
	// Closed is the first error of other addresses: of those that could not be opened, and of rules
	// that go. The next CarryOver tries them again.
	Closed error
}

// opening is a match by which a view opens ports.
type opening struct {
	pattern string
	ports   policy.PortSet
	rule    policy.RuleID
}

// openings returns the openings of lists of rules.
func openings(lists ...[]*policy.Rule) map[opening]bool {
	out := map[opening]bool{}
	for _, r := range slices.Concat(lists...) {
		for _, m := range r.Matches {
			if !m.Audit {
				out[opening{m.Pattern.String(), m.Ports, r.ID}] = true
			}
		}
	}
	return out
}

// difference is the rules in which two views differ, by tier, and the openings that the second
// lacks of them. A change of a cluster policy makes the same for each view of the node.
type difference struct {
	before, after [3][]*policy.Rule
	gone          map[opening]bool
}

// lacks tells whether a view lacks a match by which the last one opened ports. Most views
// differ in few rules, and an ID is of one rule.
func (d *difference) lacks(next, last *policy.View) bool {
	d.between(last, next)
	for o := range d.gone {
		if o.rule != "" {
			return true
		}
	}
	if len(d.gone) == 0 {
		return false
	}
	kept := openings(next.Rules.Namespace)
	for o := range d.gone {
		if !kept[o] {
			return true
		}
	}
	return false
}

// between makes the difference of two views, unless it is the same already.
func (d *difference) between(last, next *policy.View) {
	before, after := last.Rules.InOrder(), next.Rules.InOrder()
	same := d.gone != nil
	for i := range before {
		before[i], after[i] = differing(before[i], after[i])
		same = same && slices.Equal(before[i], d.before[i]) && slices.Equal(after[i], d.after[i])
	}
	if same {
		return
	}
	kept := openings(after[:]...)
	d.before, d.after, d.gone = before, after, openings(before[:]...)
	maps.DeleteFunc(d.gone, func(o opening, _ bool) bool { return kept[o] })
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

// carry is CarryOver for one pod. denies tells whether rules that deny or pass have got
// addresses.
func (t *Table) carry(ref policy.PodRef, p *podGrants, last, next *policy.View, coming *policy.Snapshot, c *Carried) (denies bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if last == next && !p.changed && !p.closed {
		return false, nil // nothing is left to take back either
	}
	p.changed = true
	t.setViews(p, slices.DeleteFunc(slices.Compact([]*policy.View{last, next}), func(v *policy.View) bool { return v == nil }))
	if err := t.moveSubjects(ref, p, coming); err != nil || next == nil {
		return false, err
	}
	again := p.closed
	p.closed = false
	t.beginBatch()
	room := t.bounds.accepts.Room(p.held.accepts, t.held.accepts)
	for s := range p.all() {
		for a, g := range s.entries {
			for _, r := range g.reasons {
				for to, by := range t.takers(p, next, s.key, r.name) {
					if to == s {
						continue
					}
					if t.batch.next(to, a) == nil && !to.key.Rule.Lasting() {
						if room <= 0 {
							continue // the next answer opens it
						}
						room--
					}
					t.batch.stage(to, a, r.takenBy(by))
					t.outlast(p, a, nil)
				}
			}
		}
	}
	if again { // the grants that these were made of may be gone
		for s := range p.all() {
			for a := range s.uncertain {
				allowed := func(r reason) bool { return next.Covers(r.name, s.key.Rule, s.key.Ports) }
				if g := s.entries[a]; g != nil && t.batch.next(s, a) == g && slices.ContainsFunc(g.reasons, allowed) {
					t.batch.change(s, a, g.clone())
				}
			}
		}
	}
	t.writeBatch()
	for i := range t.batch.sets {
		st := &t.batch.sets[i]
		rule := st.set.key.Rule
		denies = denies || rule.Lasting()
		switch {
		case st.err == nil:
		case dataplane.IsNoSet(st.err):
			return denies, st.err
		case rule.Lasting() && next.HasRule(rule):
			if c.Refused[ref] == nil {
				c.Refused[ref] = map[policy.RuleID]string{}
			}
			c.Refused[ref][rule] = st.err.Error()
		default:
			p.closed, c.Closed = true, cmp.Or(c.Closed, fmt.Errorf("write addresses of pod %s again: %w", ref, st.err))
		}
	}
	for s := range p.all() {
		for a, rs := range s.past.reasons {
			for _, r := range rs {
				for to, by := range t.takers(p, next, s.key, r.name) {
					if to != s && !to.key.Rule.Lasting() {
						to.mu.Lock()
						to.remember(a, []reason{r.takenBy(by)})
						to.mu.Unlock()
					}
				}
			}
		}
	}
	return denies, nil
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
	if p.changed {
		t.setViews(p, slices.DeleteFunc([]*policy.View{view}, func(v *policy.View) bool { return v == nil }))
		t.setSubjects(pod, p, subjectsOf(view))
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
		gone, err := t.takeBack(s, view, keep, stays, closing)
		if closed = closed || gone; err != nil {
			return closed, released, err
		}
		if !keep {
			t.place(false, s)
			if s.key.Rule == "" {
				released = append(released, s.key)
			}
		}
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

// takeBack removes from a set the reasons that a view does not allow, and the addresses
// that are left without one. Where the last reason to end is gone, the address ends
// earlier, but for a lasting rule. The table follows the kernel: after an error it still holds
// the grants to be taken back, uncertain. Without keep the set is released as a whole, and
// nothing of it is written unless the kernel's object stays. The caller holds mu.
func (t *Table) takeBack(s *set, view *policy.View, keep, stays bool, closing func() error) (closed bool, err error) {
	denied := func(r reason) bool {
		return !keep || r.name != unreadable && !view.Covers(r.name, s.key.Rule, s.key.Ports)
	}
	at := t.cfg.Clock.read()
	report := func(a netip.Addr, reasons []reason) {
		if view != nil {
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
		differs := want.Comment != is.Comment
		if is.Held == dataplane.Absent { // in this set: there is what the table has
			differs = changed
		}
		if len(g.reasons) > 0 && differs && !s.uncertain[is.Addr] {
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
