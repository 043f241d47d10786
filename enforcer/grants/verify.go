package grants

import (
	"iter"
	"net/netip"
	"runtime"

	"github.com/namegate/namegate/enforcer/dataplane"
)

// Bounds implements dataplane.Grants.
func (t *Table) Bounds() iter.Seq2[dataplane.GrantSet, dataplane.Bounds] {
	return func(yield func(dataplane.GrantSet, dataplane.Bounds) bool) {
		for s := range t.all() {
			if s.key.Rule != "" {
				continue
			}
			if !yield(s.key, s.bounds()) {
				return
			}
		}
	}
}

func (s *set) bounds() dataplane.Bounds {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return dataplane.Bounds{Min: len(s.entries) - len(s.uncertain), Max: len(s.entries)}
}

// RuleSets yields the sets of rules.
func (t *Table) RuleSets() iter.Seq[dataplane.GrantSet] {
	return func(yield func(dataplane.GrantSet) bool) {
		for s := range t.all() {
			if s.key.Rule != "" && !yield(s.key) {
				return
			}
		}
	}
}

// sharing yields a set and those that share its name.
func (t *Table) sharing(key dataplane.GrantSet) iter.Seq[*set] {
	return func(yield func(*set) bool) {
		for s := range t.pod(key.Pod).all() {
			if (s.key == key || key.Rule == "" && s.key.Name == key.Name) && !yield(s) {
				return
			}
		}
	}
}

// Freeze implements dataplane.Grants.
func (t *Table) Freeze(key dataplane.GrantSet, f func([]dataplane.Frozen)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if frozen := t.members(key, func() {}); len(frozen) > 0 {
		f(frozen)
	}
}

// membersPart is how many grants Members renders at a time, in a tenth of a millisecond: new
// grants wait for no more.
const membersPart = 64

// Members implements dataplane.Grants.
func (t *Table) Members(key dataplane.GrantSet) []dataplane.Frozen {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	return t.members(key, func() {
		if n++; n%membersPart == 0 {
			t.yield()
		}
	})
}

// yield lets a goroutine that waits for mu have it. A goroutine that takes a mutex again right
// after it gave it back would come before those that wait. The caller holds mu.
func (t *Table) yield() {
	t.mu.Unlock()
	runtime.Gosched()
	t.mu.Lock()
}

// members renders a set and those that share its name, and calls between after each grant. The
// caller holds mu.
func (t *Table) members(key dataplane.GrantSet, between func()) (out []dataplane.Frozen) {
	at := t.cfg.Clock.read()
	for s := range t.sharing(key) {
		is := dataplane.Frozen{Set: s.key, Certain: make([]dataplane.Grant, 0, len(s.entries)), Uncertain: map[netip.Addr]bool{}}
		for a, g := range s.entries {
			if s.uncertain[a] {
				is.Uncertain[a] = true
			} else {
				is.Certain = append(is.Certain, t.render(g, at))
			}
			between()
		}
		out = append(out, is)
	}
	return out
}

// FreezeBounds implements dataplane.Grants.
func (t *Table) FreezeBounds(key dataplane.GrantSet, f func(dataplane.Bounds)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var sum dataplane.Bounds
	found := false
	for s := range t.sharing(key) {
		b := s.bounds()
		sum, found = dataplane.Bounds{Min: sum.Min + b.Min, Max: sum.Max + b.Max}, true
	}
	if found {
		f(sum)
	}
}
