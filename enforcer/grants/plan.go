package grants

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/policy"
)

// setBuckets is the initial size of a set: most pods hold few addresses, and the
// kernel's default costs sixteen times the memory.
const setBuckets = 64

func (s *Set) header() ipset.Set {
	return ipset.Set{Name: s.name, Type: ipset.HashIP, IPv6: s.key.IPv6, Timeout: true, Comment: true, HashSize: setBuckets}
}

// Missing is the sets that a plan asks and the table does not hold.
type Missing struct {
	table   *Table
	sets    []*Set
	present map[string]*Set // of sets, in the kernel when they were found missing
	listed  map[*Set]bool   // of present, found by Read
	at      reading
}

// Missing returns the sets of keys that the table does not hold. present has the names of
// sets that an earlier agent left: their grants are recovered from what Read is given.
func (t *Table) Missing(keys iter.Seq[Key], present map[string]bool) *Missing {
	m := &Missing{table: t, present: map[string]*Set{}, listed: map[*Set]bool{}, at: t.cfg.Clock.read()}
	for key := range keys {
		if t.get(key) != nil {
			continue
		}
		s := &Set{name: t.cfg.SetName(key), key: key, table: t, entries: map[netip.Addr]*grant{}, past: newHistory()}
		m.sets = append(m.sets, s)
		if present[s.name] {
			m.present[s.name] = s
		}
	}
	return m
}

// NeedsListing tells whether there are grants to recover.
func (m *Missing) NeedsListing() bool { return len(m.present) > 0 }

// Read recovers the grants of one set of a listing; a large set comes in parts. A set of
// another program is left alone. An entry without a readable reason is taken in without
// one: TakeBack removes it, like every entry that no policy allows.
func (m *Missing) Read(header ipset.Set, entries []ipset.Entry) {
	s := m.present[header.Name]
	if s == nil || header.Type != ipset.HashIP || header.IPv6 != s.key.IPv6 {
		return
	}
	m.listed[s] = true
	for _, entry := range entries {
		s.entries[entry.Addr] = newGrant(readEntry(entry, m.at))
	}
}

// readEntry returns the reasons of an entry that another agent wrote. None lasts
// longer than the kernel keeps the entry.
func readEntry(entry ipset.Entry, at reading) []reason {
	rs := parseComment(entry.Comment, at.epoch)
	if entry.Timeout > 0 {
		for i := range rs {
			rs[i].until = min(rs[i].until, at.now+monotonic(entry.Timeout))
		}
	}
	return rs
}

// Add adds the sets to the table, and returns the names of those that it holds now. A set
// that was not read is created; refused is called for each that the kernel refuses.
func (m *Missing) Add(refused func(Key, error)) (added []string) {
	var ready []*Set
	for _, s := range m.sets {
		if !m.listed[s] {
			if err := m.table.cfg.Sets.Ensure(s.header()); err != nil {
				refused(s.key, err)
				continue
			}
		}
		ready, added = append(ready, s), append(added, s.name)
	}
	if len(ready) == 0 {
		return nil
	}
	t := m.table
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range ready {
		for a, g := range s.entries {
			t.enqueue(s, a, g)
		}
	}
	t.place(true, ready...)
	return added
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

// lacks tells whether a view lacks a match by which the last one opened ports.
func lacks(next, last *policy.View) bool {
	opens := func(v *policy.View) map[string]bool {
		out := map[string]bool{}
		for _, r := range v.Rules {
			for _, m := range r.Matches {
				if !m.Audit {
					out[m.Pattern.String()+" "+string(m.Ports)] = true
				}
			}
		}
		return out
	}
	kept := opens(next)
	for match := range opens(last) {
		if !kept[match] {
			return true
		}
	}
	return false
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
	others := func(s *Set, rs []reason, to func(*Set, reason)) {
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
			others(s, g.reasons, func(to *Set, r reason) { t.batch.stage(to, a, r) })
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
			others(s, rs, func(to *Set, r reason) {
				to.mu.Lock()
				defer to.mu.Unlock()
				to.past.remember(a, []reason{r})
			})
		}
	}
	return nil
}

// TakeBack takes back the grants of a pod that view does not allow, and releases the sets
// whose ports the plan does not ask any more: the caller destroys the released sets.
// closing is called before addresses are closed. closed tells whether an address, open
// before or remembered, has no reason left. Both results count after an error too.
func (t *Table) TakeBack(pod policy.PodRef, view *policy.View, ports []policy.PortSet, closing func() error) (closed bool, released []string, err error) {
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
			released = append(released, s.name)
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
func (t *Table) takeBack(s *Set, view *policy.View, keep bool, closing func() error) (closed bool, err error) {
	denied := func(r reason) bool { return !keep || !viewAllows(view, r.name, s.key.Ports) }
	at := t.cfg.Clock.read()
	if view != nil {
		t.report(s, denied, at)
	}
	var touched []netip.Addr
	left := map[netip.Addr]*grant{}
	var gone, shorter []ipset.Entry
	for a, g := range s.entries {
		kept := slices.DeleteFunc(slices.Clone(g.reasons), denied)
		if len(kept) > 0 && len(kept) == len(g.reasons) {
			continue
		}
		touched = append(touched, a)
		if len(kept) == 0 {
			gone = append(gone, ipset.Entry{Addr: a})
			continue
		}
		c := &grant{queued: g.queued, reasons: kept}
		left[a] = c
		shorter = append(shorter, t.entry(a, c, at))
	}
	if len(gone) > 0 {
		if err := closing(); err != nil {
			return false, err
		}
	}
	s.doubtAll(touched)
	if keep {
		if err := t.cfg.Sets.Delete(s.name, gone...); err != nil {
			return false, err
		}
		if err := t.cfg.Sets.Add(s.name, shorter...); err != nil {
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

// TakeOver brings the kernel's entries that the table does not know, which another agent
// wrote, into the table, and removes those that no policy allows. Entries that come or go
// after the listing are this agent's.
func (t *Table) TakeOver() error {
	held := map[string][]ipset.Entry{}
	for s := range t.All() {
		held[s.name] = nil
	}
	err := t.cfg.Sets.ListAll(func(header ipset.Set, entries []ipset.Entry) {
		if all, ours := held[header.Name]; ours && header.Type == ipset.HashIP {
			held[header.Name] = append(all, entries...)
		}
	})
	if err != nil {
		return err
	}
	for _, p := range *t.pods.Load() {
		for s := range p.all() {
			if err := t.takeOver(p, s, held[s.name]); err != nil {
				return err
			}
		}
	}
	return nil
}

// takeOver is TakeOver for one set of a pod. The other agent may have granted by a coming
// snapshot too.
func (t *Table) takeOver(p *podGrants, s *Set, entries []ipset.Entry) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.cfg.Clock.read()
	var surplus, unlike []ipset.Entry
	later := map[netip.Addr]*grant{}
	for _, entry := range entries {
		g, changed := s.entries[entry.Addr].clone(), false
		for _, r := range readEntry(entry, at) {
			if p.allowsName(r.name, s.key.Ports) && g.add(r, at.now) {
				changed = true
			}
		}
		switch {
		case len(g.reasons) == 0:
			surplus = append(surplus, ipset.Entry{Addr: entry.Addr})
		case changed:
			later[entry.Addr] = g
		}
		if want := t.entry(entry.Addr, g, at); len(g.reasons) > 0 && want.Comment != entry.Comment && !s.uncertain[entry.Addr] {
			unlike = append(unlike, want)
		}
	}
	if err := t.cfg.Sets.Delete(s.name, surplus...); err != nil {
		return err
	}
	// An entry has the reasons of the agent that wrote it last alone.
	if err := t.cfg.Sets.Add(s.name, unlike...); err != nil {
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
