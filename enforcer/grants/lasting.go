package grants

import (
	"net/netip"
	"slices"
)

// Grants of lasting rules, which deny or pass, must not expire into allowed. One ends as a
// whole, whichever name ends last, and never before another grant of its pod and address: a
// grant with a later deadline extends it first.

// ends is when a grant is over for the grants of lasting rules, which have a margin beyond.
func (t *Table) ends(s *set, g *grant) monotonic {
	if s.key.Rule.Lasting() {
		return g.until()
	}
	return g.until() + monotonic(t.cfg.Hold)
}

// outlast extends the grants of a pod's lasting rules for an address, in the batch, that
// would end before another grant of it. r waits for them. The caller holds mu.
func (t *Table) outlast(p *podGrants, a netip.Addr, r *request) {
	var lasting []*set
	for _, s := range p.sets {
		if s.key.Rule.Lasting() {
			lasting = append(lasting, s)
		}
	}
	if len(lasting) == 0 {
		return
	}
	last := never
	for _, s := range p.sets {
		if g := t.batch.next(s, a); g != nil {
			last = max(last, t.ends(s, g))
		}
	}
	soon := func(s *set) bool {
		g := t.batch.next(s, a)
		return g != nil && (g.until() < last || s.uncertain[a])
	}
	if !slices.ContainsFunc(lasting, soon) {
		return
	}
	// What is written lasts as long as after an answer, so that the next ones write nothing.
	for _, s := range lasting {
		if t.batch.next(s, a) != nil {
			last = max(last, t.batch.at.now+monotonic(s.key.Rule.Reuse()))
		}
	}
	for _, s := range lasting {
		if soon(s) {
			g := t.batch.draft(s, a) // which is written also where the deadline is the same
			g.extend(max(g.until(), last))
			r.waitFor(t.batch.change(g))
		}
	}
}

// endLasting ends grants of lasting rules that are due, but those of an address that another grant
// holds, which it extends: the kernel may have refused to remove that one. It returns the error of
// the last set that refused. The caller holds mu.
func (t *Table) endLasting(due []*grant, now monotonic) (failed error) {
	if len(due) == 0 {
		return nil
	}
	t.beginBatch()
	for _, g := range due {
		t.outlast(g.set.of, g.address(), nil)
	}
	t.writeBatch() // which replaces what it extends
	return t.endAll(slices.DeleteFunc(due, func(g *grant) bool { return !g.current() }), now)
}
