package nft

import (
	"context"
	"maps"
)

// A restarted agent finds the rules and nearly all elements of its tables as it wants them. It
// reads them, which takes milliseconds, and writes the difference: a transaction of all takes the
// program nft some 20 ms, and its end waits for the kernel.

// laidOut tells whether a table consists of the layout, and of nothing else, whatever its
// elements. Without whole it may have objects of states besides.
func (s *skeleton) laidOut(is *contents, whole bool) bool {
	want := s.wanted(nil)
	objects := &contents{hooks: is.hooks, rules: maps.Clone(is.rules), forms: is.forms, dormant: is.dormant, elements: map[string]elements{}}
	ofState := func(name string, ours bool) bool { return !ours && !whole && ofTiers(name) }
	maps.DeleteFunc(objects.rules, func(chain string, _ []string) bool { return ofState(chain, want.rules[chain] != nil) })
	for set := range is.elements {
		if _, ours := want.elements[set]; !ofState(set, ours) {
			objects.elements[set] = elements{}
		}
	}
	found, _ := want.deviations(s.family, s.table, objects)
	return len(found) == 0
}

// held returns the elements of a table, ready for a difference to all, which are those of a state.
// ok tells whether a difference is enough.
func (t *Tables) held(ctx context.Context, s *skeleton, all elements) (out elements, ok bool) {
	is, err := t.contents(ctx, s)
	if err != nil || !s.laidOut(is, true) {
		return nil, false
	}
	out = elements{}
	same := map[string]bool{}
	for set, want := range s.wanted(all).elements {
		switch {
		case volatile(set):
		case maps.EqualFunc(want, is.elements[set], sameElement):
			same[set] = true
		case s.intervals[set]: // the kernel does not tell which prefixes made a range
			return nil, false
		default:
			maps.Copy(out, is.elements[set])
		}
	}
	for key, e := range all {
		if e.Family == s.family && e.Table == s.table && same[e.Set+e.Map] {
			out[key] = e
		}
	}
	return out, true
}

// readBack makes the elements in the kernel those of the last write, where the tables have all else
// of a state.
func (t *Tables) readBack(ctx context.Context, s State) bool {
	tiers := s.tierObjects(t.tiers)
	want, applied := s.elements(tiers), elements{}
	for i := range t.both() {
		of, err := t.skeleton(i, tiers)
		if err != nil {
			return false
		}
		held, ok := t.held(ctx, of, want)
		if !ok {
			return false
		}
		maps.Copy(applied, held)
	}
	if t.namespace {
		of, err := t.net.skeleton()
		if err != nil {
			return false
		}
		held, ok := t.held(ctx, of, s.netElements())
		if !ok {
			return false
		}
		t.net.applied, t.net.partial = held, false
	} else if there, err := t.hasNet(ctx); there || err != nil {
		return false
	}
	t.CompareKeys()
	if lost, err := t.CheckKeys(tiers.entries); len(lost) > 0 || err != nil {
		return false
	}
	t.setTiers(tiers)
	t.applied, t.written, t.partial = applied, nil, false
	return true
}
