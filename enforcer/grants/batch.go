package grants

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy"
)

// batch gathers, set by set, the addresses of one write to the kernel.
type batch struct {
	at       reading
	requests []*request // that it was made of
	sets     []staged
	changes  map[place]*grant        // of sets
	without  map[policy.PodRef]error // pods that get nothing of what is left to write
	part     []*staged               // the sets that are written at a time
	ops      []dataplane.GrantOp     // one for each of part
	grants   []dataplane.Grant       // of ops
}

// place is an address of a set.
type place struct {
	set  *set
	addr [16]byte
}

// staged is the next grants of one set.
type staged struct {
	set     *set
	changes []*grant
	added   int // changes of addresses that the set does not have yet
	err     error
}

// grantsKept bounds the capacity that a batch keeps.
const grantsKept = 4096

// beginBatch begins the next batch. The caller holds mu.
func (t *Table) beginBatch() {
	b := &t.batch
	for i := range b.sets {
		st := &b.sets[i]
		st.set.staged = 0
		clear(st.changes)
		*st = staged{changes: st.changes[:0]}
	}
	clear(b.changes)
	clear(b.without)
	b.at, b.requests, b.sets = t.cfg.Clock.read(), nil, b.sets[:0]
}

// stage adds a reason to one address of a set, and returns the set's place in the
// batch, whose result decides whether the address is open, or -1 where it is open already.
func (b *batch) stage(s *set, a netip.Addr, r reason) int {
	g, is := b.next(s, a), s.at(a)
	open := is != nil && g == is && !s.uncertain[a]
	if open && is.reasons().covers(r.name, r.until) {
		return -1
	}
	if g == is {
		g = s.copyOf(a)
	}
	if !g.addTo(r, b.at.now, s.key.Rule.Reuse()) && open {
		return -1
	}
	return b.change(g)
}

// draft returns the next grant of an address, to be changed and given to change.
func (b *batch) draft(s *set, a netip.Addr) *grant {
	if g := b.next(s, a); g != s.at(a) {
		return g
	}
	return s.copyOf(a)
}

// change adds the next grant of an address, unless it is staged already, and returns the set's place in
// the batch.
func (b *batch) change(g *grant) int {
	s, at := g.set, place{g.set, g.addr}
	if s.staged == 0 {
		// Grow keeps the places that the batch has room for.
		s.staged = len(b.sets) + 1
		b.sets = slices.Grow(b.sets, 1)[:s.staged]
		b.sets[s.staged-1].set = s
	}
	if b.changes[at] != nil {
		return s.staged - 1
	}
	st := &b.sets[s.staged-1]
	b.changes[at], st.changes = g, append(st.changes, g)
	if s.entries[g.addr] == nil {
		st.added++
	}
	return s.staged - 1
}

// next returns the grant of an address after the batch, nil for none.
func (b *batch) next(s *set, a netip.Addr) *grant {
	if s.staged > 0 && a.Is6() == s.key.IPv6 {
		if g := b.changes[place{s, a.As16()}]; g != nil {
			return g
		}
	}
	return s.at(a)
}

// writeBatch writes the batch to the kernel, and then the acknowledged grants to the
// table. The result of each set is in its err. The sets of lasting rules come first: a pod of
// which one is not written gets nothing of the others. The caller holds mu.
func (t *Table) writeBatch() {
	t.makeRoom()
	t.writePart(true)
	t.writePart(false)
	t.noteShare()
}

// writePart writes the sets of lasting rules, or the others.
func (t *Table) writePart(lasting bool) {
	b := &t.batch
	part, ops, grants := b.part[:0], b.ops[:0], b.grants[:0]
	for _, ofRules := range [...]bool{true, false} {
		for i := range b.sets {
			st, rule, begin := &b.sets[i], b.sets[i].set.key.Rule, len(grants)
			if rule.Lasting() != lasting || (rule != "") != ofRules {
				continue
			}
			if st.err = b.without[st.set.key.Pod]; st.err != nil {
				continue
			}
			for _, g := range st.changes {
				grants = append(grants, t.render(g, b.at))
			}
			part, ops = append(part, st), append(ops, dataplane.GrantOp{Set: st.set.key, Grants: grants[begin:]})
		}
	}
	if len(ops) > 0 {
		t.cfg.Kernel.ApplyGrants(ops)
	}
	for i, st := range part {
		if st.err = ops[i].Err; st.err != nil {
			t.cfg.WriteFailed()
		}
		if pod := st.set.key.Pod; st.err != nil && lasting && b.without[pod] == nil {
			b.without[pod] = fmt.Errorf("not written without the rules that deny or pass: %w", st.err)
		}
		t.store(st)
	}
	clear(ops)
	clear(grants)
	if b.part, b.ops, b.grants = part, ops, grants; cap(grants) > grantsKept {
		b.grants = nil
	}
}

// store brings the result of a set into the table.
func (t *Table) store(st *staged) {
	if dataplane.IsNoSet(st.err) {
		return // then certainly nothing is open
	}
	s := st.set
	for _, g := range st.changes {
		if old := s.entries[g.addr]; old != nil && !s.key.Rule.Lasting() {
			t.remember(s, g.address(), old.reasons().without(g.reasons()))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range st.changes {
		s.put(g, st.err == nil)
	}
}

// render renders a grant for the kernel, which ends it by itself the hold after its
// deadline, and one of a lasting rule soon after it.
func (t *Table) render(g *grant, at reading) dataplane.Grant {
	s := g.set
	left := min(time.Duration(max(g.until(), at.now)-at.now), offsetMax)
	out := dataplane.Grant{Addr: g.address(), Timeout: left + keeps(s.key.Rule, t.cfg.Hold), Due: g.until() <= at.now, Uses: g.uses}
	t.comment = s.appendComment(t.comment[:0], g.reasons())
	out.Comment = string(t.comment)
	old := s.entries[g.addr]
	switch {
	case s.uncertain[out.Addr]:
	case old == nil:
		out.Held = dataplane.Absent
	case !s.deadlines:
		if t.comment = s.appendComment(t.comment[:0], old.reasons()); string(t.comment) == out.Comment {
			out.Held = dataplane.SameComment
		}
	}
	return out
}

// keeps returns how much longer than its deadline the kernel keeps a grant.
func keeps(rule policy.RuleID, hold time.Duration) time.Duration {
	if rule.Lasting() {
		return dataplane.LastingMargin
	}
	return max(hold, renewWaitLeast) + time.Second
}

// apply adds grants to one set, or removes them.
func (t *Table) apply(key dataplane.GrantSet, remove bool, grants []dataplane.Grant) error {
	if len(grants) == 0 {
		return nil
	}
	ops := []dataplane.GrantOp{{Set: key, Remove: remove, Grants: grants}}
	t.cfg.Kernel.ApplyGrants(ops)
	return ops[0].Err
}
