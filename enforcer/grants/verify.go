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

// sharing yields the sets of the Namespace tier that share the name of one.
func (t *Table) sharing(key dataplane.GrantSet) iter.Seq[*set] {
	return func(yield func(*set) bool) {
		for _, s := range t.pod(key.Pod).all() {
			if s.key.Rule == "" && s.key.Name == key.Name && !yield(s) {
				return
			}
		}
	}
}

// Freeze implements dataplane.Grants.
func (t *Table) Freeze(key dataplane.GrantSet, f func([]dataplane.Frozen)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if frozen := t.members(key, true); len(frozen) > 0 {
		f(frozen)
	}
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

// Members implements dataplane.Grants.
func (t *Table) Members(key dataplane.GrantSet) []dataplane.Frozen {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.members(key, false)
}

// members renders the sets that share a name. The caller holds mu.
func (t *Table) members(key dataplane.GrantSet, frozen bool) (out []dataplane.Frozen) {
	for s := range t.sharing(key) {
		is := dataplane.Frozen{Set: s.key, Uncertain: map[netip.Addr]bool{}}
		t.eachGrant(s, frozen, func(want *dataplane.Grant, uncertain bool) {
			if uncertain {
				is.Uncertain[want.Addr] = true
			} else {
				is.Certain = append(is.Certain, *want)
			}
		})
		out = append(out, is)
	}
	return out
}

// membersPart is how many grants are rendered at a time, in a tenth of a millisecond: new grants wait
// for no more.
const membersPart = 64

// eachGrant renders the grants of a set. Unless frozen, others are made in between. The caller holds mu.
func (t *Table) eachGrant(s *set, frozen bool, f func(want *dataplane.Grant, uncertain bool)) {
	at, n := t.cfg.Clock.read(), 0
	for _, g := range s.entries {
		want := t.render(g, at)
		f(&want, s.uncertain[want.Addr])
		if n++; !frozen && n%membersPart == 0 {
			// A goroutine that takes a mutex again right after it gave it back would come before those
			// that wait.
			t.mu.Unlock()
			runtime.Gosched()
			t.mu.Lock()
		}
	}
}
