package grants

import (
	"iter"

	"github.com/namegate/namegate/enforcer/dataplane"
)

// Bounds implements dataplane.Grants.
func (t *Table) Bounds() iter.Seq2[dataplane.GrantSet, dataplane.Bounds] {
	return func(yield func(dataplane.GrantSet, dataplane.Bounds) bool) {
		for s := range t.all() {
			if s.key.Rule != "" {
				continue
			}
			s.mu.RLock()
			b := dataplane.Bounds{Min: len(s.entries) - len(s.uncertain), Max: len(s.entries)}
			s.mu.RUnlock()
			if !yield(s.key, b) {
				return
			}
		}
	}
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

// Freeze implements dataplane.Grants.
func (t *Table) Freeze(key dataplane.GrantSet, f func([]dataplane.Frozen)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.cfg.Clock.read()
	var frozen []dataplane.Frozen
	for s := range t.pod(key.Pod).all() {
		if s.key != key && (key.Rule != "" || s.key.Name != key.Name) {
			continue
		}
		var certain []dataplane.Grant
		for a, g := range s.entries {
			if !s.uncertain[a] {
				certain = append(certain, t.render(s, a, g, at))
			}
		}
		frozen = append(frozen, dataplane.Frozen{Set: s.key, Certain: certain, Uncertain: s.uncertain})
	}
	if len(frozen) > 0 {
		f(frozen)
	}
}
