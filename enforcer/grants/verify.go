package grants

import (
	"iter"

	"github.com/namegate/namegate/enforcer/dataplane"
)

// Bounds implements dataplane.Grants.
func (t *Table) Bounds() iter.Seq2[dataplane.GrantSet, dataplane.Bounds] {
	return func(yield func(dataplane.GrantSet, dataplane.Bounds) bool) {
		for s := range t.all() {
			s.mu.RLock()
			b := dataplane.Bounds{Least: len(s.entries) - len(s.uncertain), Most: len(s.entries)}
			s.mu.RUnlock()
			if !yield(s.key, b) {
				return
			}
		}
	}
}

// Freeze implements dataplane.Grants.
func (t *Table) Freeze(key dataplane.GrantSet, f func(dataplane.Frozen)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.get(key)
	if s == nil {
		return
	}
	at := t.cfg.Clock.read()
	out := dataplane.Frozen{Uncertain: s.uncertain}
	for a, g := range s.entries {
		if !s.uncertain[a] {
			out.Certain = append(out.Certain, t.render(a, g, at))
		}
	}
	f(out)
}
