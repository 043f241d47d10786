package nft

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/knftables"
)

// signPrefix begins the name of the chain that says, by being there, which layout a
// table has. It holds nothing and nothing leads to it.
const signPrefix = "layout-"

// signature is that chain.
func (l *Layout) signature() *knftables.Chain {
	return &knftables.Chain{Name: l.sign, Comment: comment("says by its name which layout the table has")}
}

// isOtherLayout tells whether what is there of a table is ours in another layout.
func (w *Table) isOtherLayout(is *contents) bool {
	_, signed := is.rules[w.Layout.sign]
	return len(is.rules) > 0 && !signed
}

// replace begins a transaction that replaces what a table of any layout holds; the old table is in
// force until the whole transaction is.
//
// Chains that the new layout has too stay, with other rules. A packet that is under way when
// the kernel takes one base chain for another may meet the new one before its rules are in
// force and the old one after: it would meet no rule. A base chain that goes has its rules for
// a while after the transaction is in force (tried on Linux 6.18: 80 µs), and the elements of
// a map that goes are gone at once: such a rule would deny what the map allows. So maps stay:
// those that the new layout has too with its elements, the others as they are until
// removeLeft. Sets that the Store writes at any time stay too, with their elements. With whole nothing stays.
func (t *Tables) replace(ctx context.Context, w *Table, tx *knftables.Transaction, whole bool) error {
	is, err := t.objects(ctx, w.Layout.ID)
	if err != nil {
		return err
	}
	// Add first: deleting a table that is not there would be an error. It wakes one that is dormant.
	tx.Add(&knftables.Table{})
	if whole {
		tx.Delete(&knftables.Table{})
		return nil
	}
	want := w.contents()
	is.remove(tx, func(name string) bool {
		return strings.HasPrefix(name, signPrefix) || want.rules[name] != nil && is.hooks != nil && is.hooks[name] != want.hooks[name]
	}, func(name string) bool {
		s := want.sets[name]
		return s != nil && !(s.stays() && (is.forms == nil || is.forms[name] == want.forms[name]))
	})
	return nil
}

// removeLeft removes what is not wanted, and signs tables that replace
// another layout: until then the next agent finds another layout.
func (t *Tables) removeLeft(ctx context.Context, want []Table) error {
	for _, w := range guards(want, false) {
		is, err := t.objects(ctx, w.Layout.ID)
		if err != nil {
			return err
		}
		there, signed := len(is.rules) > 0, is.rules[w.Layout.sign] != nil
		wanted := w.contents()
		maps.DeleteFunc(is.rules, func(name string, _ []string) bool { return wanted.rules[name] != nil })
		maps.DeleteFunc(is.elements, func(name string, _ []string) bool { return wanted.sets[name] != nil })
		if !there || signed && len(is.rules)+len(is.elements) == 0 {
			continue
		}
		table, all := t.all[w.Layout.ID], func(string) bool { return true }
		tx := table.NewTransaction()
		is.remove(tx, all, all)
		tx.Add(w.Layout.signature())
		if err := t.run(ctx, table, tx); err != nil {
			return fmt.Errorf("remove an earlier layout from nft table %s: %w", w.Layout, err)
		}
	}
	return nil
}

// remove empties the chains of a table, and removes chains and sets.
func (is *contents) remove(tx transaction, chain, set func(name string) bool) {
	chains := slices.Sorted(maps.Keys(is.rules))
	for _, name := range chains {
		tx.Flush(&knftables.Chain{Name: name})
	}
	// Elements of maps refer to chains.
	for _, name := range slices.Sorted(maps.Keys(is.elements)) {
		if set(name) {
			tx.Delete(reference(name, is.maps[name]))
		}
	}
	for _, name := range chains {
		if chain(name) {
			tx.Delete(&knftables.Chain{Name: name})
		}
	}
}
