package enforcer

import (
	"net/netip"
	"time"

	"github.com/namegate/namegate/kernel/ipset"
)

// batch is addresses that go to the kernel together, gathered set by set. The
// enforcer has one, of who holds plan.
type batch struct {
	at   instant
	ops  []ipset.Op // one for each of sets
	sets []staged
}

// staged is what one set is to become.
type staged struct {
	set     *grantSet
	changes []change
	index   map[netip.Addr]int // of changes, once they are many
	err     error
}

// change is one address as it is to be.
type change struct {
	addr  netip.Addr
	grant *grant
}

// indexFrom is the number of changes from which on they are not searched one by one.
const indexFrom = 16

// batchKept bounds what a batch keeps room for until the next one.
const batchKept = 1024

// begin empties the batch.
func (b *batch) begin(at instant) {
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
// batch that decides whether it is open, or -1 where it is already.
func (b *batch) stage(s *grantSet, a netip.Addr, r reason) int {
	if s.staged > 0 {
		if c := b.sets[s.staged-1].find(a); c != nil {
			c.grant.add(r, b.at.now)
			return s.staged - 1
		}
	}
	old, doubt := s.entries[a], s.doubt[a]
	if old != nil && !doubt && old.covers(r.name, r.until) {
		return -1
	}
	g := newGrant()
	if old != nil {
		g = old.clone()
	}
	if !g.add(r, b.at.now) && !doubt {
		return -1
	}
	if s.staged == 0 {
		b.sets, b.ops = extended(b.sets), extended(b.ops)
		s.staged = len(b.sets)
		b.sets[s.staged-1].set, b.ops[s.staged-1].Set = s, s.name
	}
	b.sets[s.staged-1].append(change{a, g})
	return s.staged - 1
}

// extended returns a slice longer by one, with what its room held there before.
func extended[T any](s []T) []T {
	if len(s) < cap(s) {
		return s[:len(s)+1]
	}
	return append(s, *new(T))
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

// writeBatch brings a batch into the kernel, and then what it acknowledged into the
// table. What became of a set is in its err.
func (e *Enforcer) writeBatch(b *batch) {
	for i := range b.sets {
		st, op := &b.sets[i], &b.ops[i]
		if st.err = e.makeRoom(st); st.err != nil {
			continue
		}
		for j := range st.changes {
			op.Entries = append(op.Entries, e.entry(st.changes[j].addr, st.changes[j].grant, b.at))
		}
	}
	e.k.Sets.Apply(b.ops)
	for i := range b.sets {
		if st := &b.sets[i]; st.err == nil {
			if st.err = b.ops[i].Err; st.err != nil {
				e.suspect()
			}
			e.settle(st)
		}
	}
}

// settle brings into the table what became of a set.
func (e *Enforcer) settle(st *staged) {
	if ipset.IsNotFound(st.err) {
		return // then certainly nothing is open
	}
	s := st.set
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range st.changes {
		c := &st.changes[i]
		e.enqueue(s, c.addr, c.grant)
		if old := s.entries[c.addr]; old != nil {
			if left := old.without(c.grant); len(left) > 0 {
				s.past.remember(c.addr, left)
			}
		}
		s.put(c.addr, c.grant, st.err == nil)
	}
}

// enqueue gives a grant a place in the queue of deadlines, if it has none or only
// a later one.
func (e *Enforcer) enqueue(s *grantSet, a netip.Addr, g *grant) {
	if until := g.until(); g.queued == 0 || until < g.queued {
		g.queued = until
		e.grants.due.push(due{until, s, a})
	}
}

// entry renders a grant for the kernel: it ends the outage hold after its
// deadline by itself.
func (e *Enforcer) entry(a netip.Addr, g *grant, at instant) ipset.Entry {
	left := min(time.Duration(max(g.until(), at.now)-at.now), ipset.TimeoutMax)
	var room [4 * ipset.CommentLengthMax]byte
	return ipset.Entry{
		Addr: a, Timeout: min(left+e.cfg.Hold+time.Second, ipset.TimeoutMax),
		Comment: string(appendComment(room[:0], g.reasons)),
	}
}
