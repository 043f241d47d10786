package nft

import (
	"context"
	"maps"
)

// A restarted agent finds the rules and nearly all elements of its tables as it wants them. It
// reads them, which takes milliseconds, and writes the difference: a transaction of all takes the
// program nft some 20 ms, and its end waits for the kernel.

// laidOut tells whether what is there consists of what is wanted, and of nothing else, whatever its
// elements. Without whole it may have objects besides that pass.
func (w *Table) laidOut(is *contents, whole bool) bool {
	want := w.contents()
	objects := &contents{hooks: is.hooks, rules: maps.Clone(is.rules), forms: is.forms, maps: is.maps, dormant: is.dormant, elements: map[string]Elements{}}
	passes := func(name string, ours bool) bool { return !ours && !whole && w.Layout.passes(name) }
	maps.DeleteFunc(objects.rules, func(chain string, _ []string) bool { return passes(chain, want.rules[chain] != nil) })
	for set := range is.elements {
		if !passes(set, want.sets[set] != nil) {
			objects.elements[set] = want.elements[set]
		}
	}
	found, _ := want.deviations(w.Layout, objects)
	return len(found) == 0
}

// held returns a table with the elements that it has, ready for a difference to what is wanted, nil if none is enough.
func (t *Tables) held(ctx context.Context, w *Table) *Table {
	want := w.contents()
	is, err := t.contents(ctx, w.Layout.ID, want)
	if err != nil || !w.laidOut(is, true) {
		return nil
	}
	same, out := map[string]bool{}, Elements{}
	for set, s := range want.sets {
		switch {
		case s.Fill.volatile():
		case maps.EqualFunc(want.elements[set], is.elements[set], sameElement):
			same[set] = true
		case s.Fill == Ranges: // the kernel does not tell which prefixes made a range
			return nil
		default:
			maps.Copy(out, is.elements[set])
		}
	}
	for key, e := range w.Elements {
		if same[e.Set+e.Map] {
			out[key] = e
		}
	}
	return &Table{Layout: w.Layout, Chains: w.Chains, Sets: w.Sets, Elements: out}
}

// readBack makes the elements in the kernel those of the last write, where the tables have all else
// that is wanted.
func (t *Tables) readBack(ctx context.Context, want []Table) bool {
	var all []Table
	for i := range want {
		held := t.held(ctx, &want[i])
		if held == nil {
			return false
		}
		all = append(all, *held)
	}
	for _, id := range t.others(want) {
		if there, err := t.isThere(ctx, id); there || err != nil {
			return false
		}
	}
	t.Store.CompareKeys()
	if lost, err := t.Store.CheckKeys(entriesOf(want)); len(lost) > 0 || err != nil {
		return false
	}
	t.wrote(all)
	t.partial = false
	return true
}
