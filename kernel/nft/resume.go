package nft

import (
	"context"
	"slices"
)

// A restarted agent finds the rules and nearly all elements of its tables as it wants them. It
// reads them, which takes milliseconds, and writes the difference: a transaction of all takes the
// program nft some 20 ms, and its end waits for the kernel.

// held returns a table with the elements that it has, ready for a difference to what is wanted, nil if none is enough.
func (t *Tables) held(ctx context.Context, w *Table) *Table {
	want := w.contents()
	is, err := t.contents(ctx, w.Layout.ID, want)
	if err != nil {
		return nil
	}
	if found, _ := is.deviations(w.Layout, want, objects); len(found) > 0 {
		return nil
	}
	out := Elements{}
	for set, s := range want.sets {
		switch {
		case s.Fill.volatile():
		case s.Fill != Ranges:
			out[set] = is.elements[set]
		case !slices.Equal(want.elements[set], is.elements[set]):
			return nil // the kernel does not tell which prefixes made a range
		default:
			out[set] = w.Elements[set]
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
