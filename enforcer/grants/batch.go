package grants

import (
	"net/netip"
	"slices"
	"time"

	"github.com/namegate/namegate/kernel/ipset"
)

// batch gathers, set by set, the addresses that one write brings into the kernel.
type batch struct {
	at   reading
	ops  []ipset.Op // one for each of sets
	sets []staged
}

// staged is the changes of one set.
type staged struct {
	set     *Set
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

// batchKept bounds the capacity that a set's place in the batch keeps.
const batchKept = 1024

// begin empties the batch.
func (b *batch) begin(at reading) {
	b.at = at
	for i := range b.sets {
		st := &b.sets[i]
		st.set.staged = 0
		if cap(st.changes) > batchKept || cap(b.ops[i].Entries) > batchKept {
			st.changes, b.ops[i].Entries = nil, nil
		}
		clear(st.changes)
		clear(b.ops[i].Entries)
		*st, b.ops[i] = staged{changes: st.changes[:0]}, ipset.Op{Entries: b.ops[i].Entries[:0]}
	}
	b.sets, b.ops = b.sets[:0], b.ops[:0]
}

// stage adds a reason to one address of a set, and returns the set's place in the
// batch, whose result decides whether the address is open, or -1 where it is open already.
func (b *batch) stage(s *Set, a netip.Addr, r reason) int {
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
		// Grow keeps what a place in the batch has room for.
		s.staged = len(b.sets) + 1
		b.sets, b.ops = slices.Grow(b.sets, 1)[:s.staged], slices.Grow(b.ops, 1)[:s.staged]
		b.sets[s.staged-1].set, b.ops[s.staged-1].Set = s, s.name
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
	for i := range b.sets {
		st, op := &b.sets[i], &b.ops[i]
		if st.err = t.evict(st); st.err != nil {
			continue
		}
		for j := range st.changes {
			op.Entries = append(op.Entries, t.entry(st.changes[j].addr, st.changes[j].grant, b.at))
		}
	}
	t.cfg.Sets.Apply(b.ops)
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
	if ipset.IsNotFound(st.err) {
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

// entry renders a grant for the kernel, which ends it by itself the hold after its
// deadline.
func (t *Table) entry(a netip.Addr, g *grant, at reading) ipset.Entry {
	left := min(time.Duration(max(g.until(), at.now)-at.now), ipset.TimeoutMax)
	var buf [4 * ipset.CommentLengthMax]byte
	return ipset.Entry{
		Addr: a, Timeout: min(left+t.cfg.Hold+time.Second, ipset.TimeoutMax),
		Comment: string(appendComment(buf[:0], g.reasons)),
	}
}
