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
	ops      []dataplane.GrantOp // one for each of sets
	grants   []dataplane.Grant   // of ops
}

// staged is the next grants of one set.
type staged struct {
	set     *set
	op      int // its place in ops
	changes []*grant
	index   map[[16]byte]*grant // of changes, once they are many
	added   int                 // changes of addresses that the set does not have yet
	err     error
}

// indexFrom is the number of changes from which on they have an index.
const indexFrom = 16

// grantsKept bounds the capacity that a batch keeps.
const grantsKept = 4096

// beginBatch begins the next batch. The caller holds mu.
func (t *Table) beginBatch() { t.batch.begin(t.cfg.Clock.read()) }

// begin empties the batch.
func (b *batch) begin(at reading) {
	b.at, b.requests = at, nil
	for i := range b.sets {
		st := &b.sets[i]
		st.set.staged = 0
		clear(st.changes)
		*st = staged{changes: st.changes[:0]}
	}
	clear(b.ops)
	clear(b.grants)
	if b.sets, b.ops, b.grants = b.sets[:0], b.ops[:0], b.grants[:0]; cap(b.grants) > grantsKept {
		b.grants = nil
	}
}

// stage adds a reason to one address of a set, and returns the set's place in the
// batch, whose result decides whether the address is open, or -1 where it is open already.
func (b *batch) stage(s *set, a netip.Addr, r reason) int {
	if s.staged > 0 {
		if g := b.sets[s.staged-1].find(a); g != nil {
			g.addTo(r, b.at.now)
			return s.staged - 1
		}
	}
	old, uncertain := s.at(a), s.uncertain[a]
	if old != nil && !uncertain && old.reasons().covers(r.name, r.until) {
		return -1
	}
	g := s.copyOf(a)
	if !g.addTo(r, b.at.now) && !uncertain {
		return -1
	}
	return b.change(g)
}

// change adds the next grant of an address, which is not staged yet.
func (b *batch) change(g *grant) int {
	s := g.set
	if s.staged == 0 {
		// Grow keeps the places that the batch has room for.
		s.staged = len(b.sets) + 1
		b.sets = slices.Grow(b.sets, 1)[:s.staged]
		b.sets[s.staged-1].set = s
	}
	st := &b.sets[s.staged-1]
	if st.append(g); s.entries[g.addr] == nil {
		st.added++
	}
	return s.staged - 1
}

// next returns the grant of an address after the batch, nil for none.
func (b *batch) next(s *set, a netip.Addr) *grant {
	if s.staged > 0 && a.Is6() == s.key.IPv6 {
		if g := b.sets[s.staged-1].find(a); g != nil {
			return g
		}
	}
	return s.at(a)
}

func (st *staged) find(a netip.Addr) *grant {
	key := a.As16()
	if st.index != nil {
		return st.index[key]
	}
	for _, g := range st.changes {
		if g.addr == key {
			return g
		}
	}
	return nil
}

func (st *staged) append(g *grant) {
	st.changes = append(st.changes, g)
	switch n := len(st.changes); {
	case n == indexFrom:
		st.index = map[[16]byte]*grant{}
		for _, g := range st.changes {
			st.index[g.addr] = g
		}
	case n > indexFrom:
		st.index[g.addr] = g
	}
}

// writeBatch writes the batch to the kernel, and then the acknowledged grants to the
// table. The result of each set is in its err. The sets of lasting rules come first: a pod of
// which one is not written gets nothing of the others. The caller holds mu.
func (t *Table) writeBatch() {
	b := &t.batch
	count := 0
	for i := range b.sets {
		count += len(b.sets[i].changes)
	}
	b.ops, b.grants = slices.Grow(b.ops, len(b.sets)), slices.Grow(b.grants, count)
	failed := t.writePart(true, t.makeRoom())
	t.writePart(false, failed)
	t.noteShare()
}

// writePart writes the sets of lasting rules, or the others, but those of pods in without. It adds
// the pods to these with a set of a lasting rule that was not written.
func (t *Table) writePart(lasting bool, without map[policy.PodRef]error) map[policy.PodRef]error {
	b := &t.batch
	first := len(b.ops)
	for i := range b.sets {
		st, begin := &b.sets[i], len(b.grants)
		if st.set.key.Rule.Lasting() != lasting {
			continue
		}
		if err := without[st.set.key.Pod]; err != nil {
			st.err = err
		} else {
			for _, g := range st.changes {
				b.grants = append(b.grants, t.render(g, b.at))
			}
		}
		st.op = len(b.ops)
		b.ops = append(b.ops, dataplane.GrantOp{Set: st.set.key, Grants: b.grants[begin:]})
	}
	if first == len(b.ops) {
		return without
	}
	t.cfg.Kernel.ApplyGrants(b.ops[first:])
	for i := range b.sets {
		st := &b.sets[i]
		if st.set.key.Rule.Lasting() != lasting {
			continue
		}
		if st.err == nil {
			if st.err = b.ops[st.op].Err; st.err != nil {
				t.cfg.WriteFailed()
			}
			t.store(st)
		}
		if st.err != nil && lasting && without[st.set.key.Pod] == nil {
			if without == nil {
				without = map[policy.PodRef]error{}
			}
			without[st.set.key.Pod] = fmt.Errorf("not written without the rules that deny or pass: %w", st.err)
		}
	}
	return without
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
	out := dataplane.Grant{Addr: g.address(), Timeout: left + t.keeps(s), Due: g.until() <= at.now, Uses: g.uses}
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
func (t *Table) keeps(s *set) time.Duration {
	if s.key.Rule.Lasting() {
		return dataplane.LastingMargin
	}
	return max(t.cfg.Hold, renewWaitLeast) + time.Second
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
