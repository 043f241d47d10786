package grants

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// CarryOver lets grants be made under the views of the last snapshot and of the next one,
// and opens in the sets of a changed view the addresses that the pod's names had opened in
// its other sets, with the deadlines that they had. Rules that deny or pass take over the
// names of all sets, rules that accept only those of others that do. An address that is
// another pod's in the next snapshot leaves no grant of a rule behind.
func (t *Table) CarryOver(last, next *policy.Snapshot) (c Carried, err error) {
	if next != nil {
		var pods []policy.PodRef
		for _, v := range next.Views {
			pods = append(pods, v.Pod.PodRef)
		}
		t.mu.Lock()
		t.addPods(pods...)
		t.mu.Unlock()
	}
	var d difference
	c.Refused = map[policy.PodRef]map[policy.RuleID]string{}
	var all []*carrying
	for ref, p := range *t.pods.Load() {
		of := &carrying{ref: ref, p: p, next: next.ViewOf(ref), to: &c}
		was := last.ViewOf(ref)
		if was != nil && of.next != nil && d.lacks(of.next, was) {
			c.Narrowed = append(c.Narrowed, ref)
		}
		// An address that moves between pods leaves the first before the second has entries for it.
		carries, err := t.beginCarry(of, was, next)
		if err != nil {
			return c, err
		}
		if carries {
			all = append(all, of)
		}
	}
	for _, of := range all {
		err := t.carry(of)
		if of.denies && !slices.Contains(c.Narrowed, of.ref) {
			c.Narrowed = append(c.Narrowed, of.ref)
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

// carrying is a CarryOver for one pod.
type carrying struct {
	ref    policy.PodRef
	p      *podGrants
	next   *policy.View
	to     *Carried
	denies bool // rules that deny or pass have got addresses
}

// source is a name by which an address of a set is open, or was.
type source struct {
	set     *set
	addr    netip.Addr
	name    fqdn.Name
	again   bool     // to be written again if next covers it
	takenBy []taking // by next, the same for the same name
}

// carry carries over the grants of one pod. Each name is decided once, without mu, and the table is free for
// others after each part: what is granted meanwhile is granted by the next view too, see stageGrant.
func (t *Table) carry(of *carrying) error {
	t.mu.Lock()
	again := of.p.closed
	of.p.closed = false
	t.mu.Unlock()
	for sources := of.p.sources(again); len(sources) > 0; {
		part := sources[:min(len(sources), batchGrants)]
		sources = sources[len(part):]
		of.decide(part)
		for len(part) > 0 {
			n, err := t.carryPart(of, part)
			if err != nil {
				return err
			}
			part = part[n:]
		}
	}
	return nil
}

// beginCarry lets grants of a pod be made under both views, and tells whether there is anything to carry.
func (t *Table) beginCarry(of *carrying, last *policy.View, coming *policy.Snapshot) (carries bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := of.p
	if last == of.next && !p.changed && !p.closed {
		return false, nil // nothing is left to take back either
	}
	p.changed = true
	lost := func(a netip.Addr) bool {
		owner, known := coming.Pod(a)
		return known && owner != of.ref
	}
	t.setViews(p, slices.Compact([]*policy.View{last, of.next}), lost)
	if err := t.moveSubjects(p, lost); err != nil || of.next == nil {
		return false, err
	}
	return true, nil
}

// sources returns the names of the addresses that are open to the pod or were, sorted by name: where there is no
// room for all, whole names have it.
func (p *podGrants) sources(again bool) (out []source) {
	for _, s := range p.all() {
		s.mu.RLock()
		out = slices.Grow(out, len(s.entries)+len(s.past))
		s.eachName(func(a netip.Addr, name fqdn.Name, live bool) {
			out = append(out, source{set: s, addr: a, name: name, again: again && live && s.uncertain[a]})
		})
		s.mu.RUnlock()
	}
	slices.SortFunc(out, func(a, b source) int { return strings.Compare(string(a.name), string(b.name)) })
	return out
}

// eachName calls do with the names of the set's addresses, live or remembered. The caller holds mu.
func (s *set) eachName(do func(a netip.Addr, name fqdn.Name, live bool)) {
	each := func(a netip.Addr, all reasons, live bool) {
		for i := range all {
			if all[i].name != unreadable {
				do(a, all[i].name, live)
			}
		}
	}
	for _, g := range s.entries {
		each(g.address(), g.reasons(), true)
	}
	for a, all := range s.past {
		each(a, all, false)
	}
}

// decide fills in what takes over each source.
func (of *carrying) decide(part []source) {
	for i := range part {
		s := &part[i]
		s.again = s.again && of.next.Covers(s.name, s.set.key.Rule, s.set.key.Ports)
		if i > 0 && part[i-1].name == s.name {
			s.takenBy = part[i-1].takenBy
		} else {
			s.takenBy = takingOf(of.next, s.name)
		}
	}
}

// carryPart carries over the first sources, as many as one write has room for, and returns their
// number.
func (t *Table) carryPart(of *carrying, part []source) (n int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.beginBatch()
	room, staged := t.bounds[accepts].Room(of.p.held[accepts], t.held[accepts]), 0
	for n < len(part) && staged < batchGrants {
		s := &part[n]
		n++
		var live *reason
		if g := s.set.at(s.addr); g != nil {
			live = g.reasons().of(s.name)
		}
		past := s.set.past[s.addr].of(s.name)
		if live == nil && past == nil {
			continue
		}
		if s.again && live != nil && s.set.uncertain[s.addr] { // the grants that it was made of may be gone
			t.batch.change(t.batch.draft(s.set, s.addr))
			staged++
		}
		for to, by := range t.takers(of.p, s.takenBy, &s.set.key) {
			if to == s.set {
				continue
			}
			staged++
			if past != nil && !to.key.Rule.Lasting() {
				t.remember(to, s.addr, reasons{past.takenBy(by)})
			}
			comes := !to.key.Rule.Lasting() && t.batch.next(to, s.addr) == nil
			if live == nil || comes && room <= 0 {
				continue // the next answer opens it
			}
			if comes {
				room--
			}
			t.batch.stage(to, s.addr, live.takenBy(by))
			t.outlast(of.p, s.addr, nil)
		}
	}
	t.writeBatch()
	return n, of.result(&t.batch)
}

// result takes in what was written of a part.
func (of *carrying) result(b *batch) error {
	for i := range b.sets {
		st := &b.sets[i]
		rule := st.set.key.Rule
		of.denies = of.denies || rule.Lasting()
		switch {
		case st.err == nil:
		case dataplane.IsNoSet(st.err):
			return st.err
		case rule.Lasting() && of.next.HasRule(rule):
			if of.to.Refused[of.ref] == nil {
				of.to.Refused[of.ref] = map[policy.RuleID]string{}
			}
			of.to.Refused[of.ref][rule] = st.err.Error()
		default:
			of.p.closed, of.to.Closed = true, cmp.Or(of.to.Closed, fmt.Errorf("write addresses of pod %s again: %w", of.ref, st.err))
		}
	}
	return nil
}
