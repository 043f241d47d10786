package grants

import (
	"net/netip"
	"slices"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
)

// batch gathers, set by set, the addresses of one write to the kernel.
type batch struct {
	at     reading
	sets   []staged
	ops    []dataplane.GrantOp // one for each of sets
	grants []dataplane.Grant   // of ops
}

// staged is the changes of one set.
type staged struct {
	set     *set
	changes []change
	index   map[netip.Addr]int // of changes, once they are many
	err     error
}

// change is one address with its next grant.
type change struct {
	addr  netip.Addr
	grant *grant
}

// indexFrom is the number of changes from which on they have an index.
const indexFrom = 16

// batchKept bounds the capacity that a set's place in the batch keeps, and grantsKept that
// of all.
const (
	batchKept  = 1024
	grantsKept = 4096
)

// begin empties the batch.
func (b *batch) begin(at reading) {
	b.at = at
	for i := range b.sets {
		st := &b.sets[i]
		st.set.staged = 0
		if cap(st.changes) > batchKept {
			st.changes = nil
		}
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
		if c := b.sets[s.staged-1].find(a); c != nil {
			c.grant.add(r, b.at.now)
			return s.staged - 1
		}
	}
	old, uncertain := s.entries[a], s.uncertain[a]
	if old != nil && !uncertain && old.covers(r.name, r.until) {
		return -1
	}
	g := old.clone()
	if !g.add(r, b.at.now) && !uncertain {
		return -1
	}
	if s.staged == 0 {
		// Grow keeps the places that the batch has room for.
		s.staged = len(b.sets) + 1
		b.sets = slices.Grow(b.sets, 1)[:s.staged]
		b.sets[s.staged-1].set = s
	}
	b.sets[s.staged-1].append(change{a, g})
	return s.staged - 1
}

func (st *staged) find(a netip.Addr) *change {
	if st.index != nil {
		if i, ok := st.index[a]; ok {
			return &st.changes[i]
		}
		return nil
	}
	for i := range st.changes {
		if st.changes[i].addr == a {
			return &st.changes[i]
		}
	}
	return nil
}

func (st *staged) append(c change) {
	st.changes = append(st.changes, c)
	switch n := len(st.changes); {
	case n == indexFrom:
		st.index = map[netip.Addr]int{}
		for i := range st.changes {
			st.index[st.changes[i].addr] = i
		}
	case n > indexFrom:
		st.index[c.addr] = n - 1
	}
}

// writeBatch writes the batch to the kernel, and then the acknowledged grants to the
// table. The result of each set is in its err. The caller holds mu.
func (t *Table) writeBatch() {
	b := &t.batch
	count := 0
	for i := range b.sets {
		count += len(b.sets[i].changes)
	}
	b.ops, b.grants = slices.Grow(b.ops, len(b.sets)), slices.Grow(b.grants, count)
	for i := range b.sets {
		st, begin := &b.sets[i], len(b.grants)
		if st.err = t.evict(st); st.err == nil {
			for j := range st.changes {
				b.grants = append(b.grants, t.render(st.changes[j].addr, st.changes[j].grant, b.at))
			}
		}
		b.ops = append(b.ops, dataplane.GrantOp{Set: st.set.key, Grants: b.grants[begin:]})
	}
	t.cfg.Kernel.ApplyGrants(b.ops)
	for i := range b.sets {
		if st := &b.sets[i]; st.err == nil {
			if st.err = b.ops[i].Err; st.err != nil {
				t.cfg.WriteFailed()
			}
			t.store(st)
		}
	}
}

// store brings the result of a set into the table.
func (t *Table) store(st *staged) {
	if dataplane.IsNoSet(st.err) {
		return // then certainly nothing is open
	}
	s := st.set
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range st.changes {
		c := &st.changes[i]
		t.enqueue(s, c.addr, c.grant)
		if old := s.entries[c.addr]; old != nil {
			if left := old.without(c.grant); len(left) > 0 {
				s.past.remember(c.addr, left)
			}
		}
		s.put(c.addr, c.grant, st.err == nil)
	}
}

// render renders a grant for the kernel, which ends it by itself the hold after its
// deadline.
func (t *Table) render(a netip.Addr, g *grant, at reading) dataplane.Grant {
	left := min(time.Duration(max(g.until(), at.now)-at.now), offsetMax)
	var buf [4 * dataplane.CommentMax]byte
	return dataplane.Grant{Addr: a, Timeout: left + t.cfg.Hold + time.Second, Comment: string(appendComment(buf[:0], g.reasons))}
}

// apply adds grants to one set, or removes them.
func (t *Table) apply(s *set, remove bool, grants []dataplane.Grant) error {
	if len(grants) == 0 {
		return nil
	}
	ops := []dataplane.GrantOp{{Set: s.key, Remove: remove, Grants: grants}}
	t.cfg.Kernel.ApplyGrants(ops)
	return ops[0].Err
}
