package nft

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/namegate/namegate/kernel/nft/generation"
	"github.com/namegate/namegate/kernel/nft/timed"
	"sigs.k8s.io/knftables"
)

// Tables are tables of ours in one network namespace.
type Tables struct {
	Store *timed.Store // of the first table
	// all are the tables that may be there, by names in the order in which they are made.
	all   map[ID]knftables.Interface
	names []ID
	// last is what each table holds since the last write, no elements of a table that is partial. A guard without
	// one may hold anything. gone are those that are known to be missing.
	last map[ID]*Table
	gone map[ID]bool
	// With partial the kernel may hold other elements, and the next write makes all of them anew.
	partial bool
	// otherLayout: the tables in the kernel have another layout. They stay in force until the first write.
	otherLayout bool
	// resumes: Setup found the layout in force, and the first write is a delta to the tables.
	resumes     bool
	generations *generation.Tracker
	reader      reader
	flowtables  []Flowtable // those of FakeFlowtables
	direct      bool        // the tables are in the kernel: changes are written by netlink
	moves       bool        // the kernel moves the deadline of an element that is there
	kernel      kernel
}

// Open finds the nft program, for tables that are made in this order. The error says which part is missing.
func Open(names ...ID) (*Tables, error) {
	all := make([]knftables.Interface, len(names))
	for i, id := range names {
		table, err := knftables.New(knftables.Family(id.Family), id.Name, knftables.NoObjectCommentEmulation)
		if err != nil {
			return nil, fmt.Errorf("nftables of the family %s is not available (install the package nftables): %w", id.Family, err)
		}
		all[i] = program{table}
	}
	t := New(names, all...)
	for _, s := range []**nfattr.Socket{&t.kernel.changes, &t.kernel.lister} {
		var err error
		if *s, err = nfattr.OpenSocket(); err != nil {
			t.Close()
			return nil, err
		}
	}
	t.direct, t.moves, t.reader = true, movesDeadlines(), t.kernel
	t.generations = generation.New(t.kernel.generation)
	t.openStore()
	return t, nil
}

// Close closes the sockets.
func (t *Tables) Close() {
	t.kernel.changes.Close()
	t.kernel.lister.Close()
}

// New returns the tables on given interfaces, which may be knftables' fakes.
func New(names []ID, all ...knftables.Interface) *Tables {
	t := &Tables{all: map[ID]knftables.Interface{}, names: names, last: map[ID]*Table{}, gone: map[ID]bool{}, generations: generation.New(nil)}
	for i, id := range names {
		t.all[id] = all[i]
	}
	t.reader = interfaceReader(t.all)
	t.openStore()
	return t
}

// openStore sets the Store.
func (t *Tables) openStore() {
	t.Store = timed.New(timed.Options{Table: t.all[t.names[0]], Name: t.names[0].Name, Generations: t.generations,
		Changes: t.kernel.changes, Lister: t.kernel.lister, Moves: t.moves})
}

// guards returns the tables that are guards, or the others.
func guards(want []Table, are bool) (out []*Table) {
	for i := range want {
		if want[i].Layout.Guard == are {
			out = append(out, &want[i])
		}
	}
	return out
}

// Setup creates the tables, or replaces the chains and rules of tables that are
// there, in one transaction each, unless all are as wanted; elements of sets stay. Of what is wanted the layouts
// count, but for guards. Tables of another layout stay
// as they are until Apply or Rewrite, which replaces them with all they hold. It must
// come before every other method that writes.
func (t *Tables) Setup(ctx context.Context, want []Table) error {
	t.otherLayout = false
	t.Store.ProbeUses()
	same := true
	var layouts []Table
	for _, w := range guards(want, false) {
		w = &Table{Layout: w.Layout}
		is, err := t.objects(ctx, w.Layout.ID)
		if err != nil {
			return err
		}
		t.otherLayout = t.otherLayout || w.isOtherLayout(is)
		found, _ := is.deviations(w.Layout, w.contents(), ofLayout)
		same = same && len(found) == 0
		layouts = append(layouts, *w)
	}
	switch {
	case t.otherLayout:
	case same:
		t.resumes = true
		t.wrote(layouts)
	default:
		if err := t.layOut(ctx, layouts, false); err != nil {
			return err
		}
	}
	t.partial = true
	return nil
}

// wrote notes what tables hold.
func (t *Tables) wrote(all []Table) {
	for i := range all {
		t.last[all[i].Layout.ID] = &all[i]
	}
}

// Rewrite makes all tables anew, chains, rules and elements, in one transaction each, so
// that nothing is missing for a moment, and removes those that are not wanted.
func (t *Tables) Rewrite(ctx context.Context, want []Table) error {
	if err := t.layOut(ctx, want, true); err != nil {
		// Another program may have left a set of another type under a name of ours.
		t.otherLayout = true
		return err
	}
	t.partial = false
	for _, w := range guards(want, true) {
		if err := t.writeGuard(ctx, w); err != nil {
			return err
		}
	}
	if err := t.removeOthers(ctx, want); err != nil {
		return err
	}
	t.Store.CompareKeys()
	_, err := t.Store.CheckKeys(entriesOf(want))
	return err
}

// entriesOf are the names of the sets of entries that have keys.
func entriesOf(want []Table) (out []string) {
	for i := range want {
		out = append(out, want[i].entries()...)
	}
	return out
}

// layOut writes chains and rules of all tables but guards and, with elements, the elements, which replace all that the
// tables hold.
func (t *Tables) layOut(ctx context.Context, want []Table, elements bool) error {
	for _, w := range guards(want, false) {
		err := t.layOutTable(ctx, w, elements, false)
		if t.otherLayout && isRefused(err) {
			// The table may hold another program's objects.
			err = t.layOutTable(ctx, w, elements, true)
		}
		if err != nil {
			return fmt.Errorf("write nft table %s: %w", w.Layout, err)
		}
		t.last[w.Layout.ID] = w
	}
	t.otherLayout = false
	if !elements {
		return nil
	}
	return t.removeLeft(ctx, want)
}

// layOutTable writes one table in one transaction. A table of another layout is replaced in place
// or, with whole, made anew, with its elements of Renew.
func (t *Tables) layOutTable(ctx context.Context, w *Table, elements, whole bool) error {
	table := t.all[w.Layout.ID]
	tx := table.NewTransaction()
	if t.otherLayout {
		if err := t.replace(ctx, w, tx, whole); err != nil {
			return err
		}
	}
	w.layOut(tx)
	of, err := t.elementsOfRenewed(ctx, w, !whole)
	switch {
	case err != nil:
		return err
	case !t.otherLayout:
		tx.Add(w.Layout.signature())
		for _, e := range of {
			tx.Delete(e)
		}
	case whole: // else interception would end until the next heartbeat
		for _, e := range of {
			tx.Add(e)
		}
	}
	if elements {
		w.refill(tx)
	}
	if err := t.run(ctx, table, tx); err != nil || !whole {
		return err
	}
	t.generations.Forget() // entries are gone: everything is to be verified
	return nil
}

// run makes one change.
func (t *Tables) run(ctx context.Context, table knftables.Interface, tx *knftables.Transaction) error {
	return t.generations.Own(func() error { return table.Run(ctx, tx) })
}

// refill empties every set and map whose elements do not end by themselves, and adds what is wanted.
func (w *Table) refill(tx *knftables.Transaction) {
	for s := range w.sets() {
		if s.Fill < Renewed {
			tx.Flush(reference(s.Name, s.Value != ""))
		}
	}
	w.Elements.each(slices.Collect(w.sets()), func(e *knftables.Element) { tx.Add(e) })
}

// Apply makes the tables hold what is wanted, as a delta to their last content, in one transaction for each after
// another with new chains to which elements lead. The first write after Setup is a delta to the tables that
// Setup found; it, and one after a failed write, writes the tables anew where no delta is enough.
// Tables that are not wanted are removed.
func (t *Tables) Apply(ctx context.Context, want []Table) error {
	for _, w := range guards(want, false) {
		last := t.last[w.Layout.ID]
		t.partial = t.partial || last == nil
		t.otherLayout = t.otherLayout || last != nil && last.Layout.sign != w.Layout.sign
	}
	resumes := t.resumes && !t.otherLayout && t.partial
	t.resumes = false
	if resumes && t.readBack(ctx, want) {
		return t.change(ctx, want)
	}
	if t.otherLayout || t.partial {
		return t.Rewrite(ctx, want)
	}
	return t.change(ctx, want)
}

// change makes the difference to the last write.
func (t *Tables) change(ctx context.Context, want []Table) error {
	for _, w := range guards(want, true) {
		// A guard that is not there must not hold up the others. It is made anew behind them.
		_ = t.changeGuard(ctx, w, false)
	}
	for _, w := range guards(want, false) {
		for _, c := range t.difference(w).steps() {
			if err := t.write(ctx, w.Layout.ID, c); err != nil {
				t.partial = true // one table may have changed: write all anew next time
				return fmt.Errorf("change sets of nft table %s: %w", w.Layout, err)
			}
		}
	}
	for _, w := range guards(want, false) {
		t.last[w.Layout.ID] = w
	}
	for _, w := range guards(want, true) {
		if err := t.changeGuard(ctx, w, true); err != nil {
			return err
		}
	}
	return t.removeOthers(ctx, want)
}

// Own runs a change that another package makes of nftables for the agent, so that
// ExternalChange does not count it.
func (t *Tables) Own(change func() error) error { return t.generations.Own(change) }

// Checkpoint notes the generation of nftables. The caller calls it before it compares
// everything in the kernel with the desired state.
func (t *Tables) Checkpoint() { t.generations.Checkpoint() }

// ExternalChange tells whether another program may have changed nftables, iptables in
// nftables included, since Checkpoint. On fakes it is always true.
func (t *Tables) ExternalChange() bool { return t.generations.External() }

// Remove deletes all tables, the last first: a guard without the others would deny everything. Tables that are not
// there are no error.
func (t *Tables) Remove(ctx context.Context) error {
	var first error
	for i, id := range slices.Backward(t.names) {
		if err := t.removeTable(ctx, id); err != nil {
			if first = cmp.Or(first, err); i == len(t.names)-1 {
				break // a guard would deny what the others allow
			}
		}
	}
	return first
}

// removeOthers removes the tables that are not wanted.
func (t *Tables) removeOthers(ctx context.Context, want []Table) error {
	for _, id := range t.others(want) {
		if t.gone[id] {
			continue
		}
		there, err := t.isThere(ctx, id)
		if there && err == nil {
			err = t.removeTable(ctx, id)
		}
		if err != nil {
			return err
		}
		t.gone[id] = true
	}
	return nil
}

// others are the tables that are not wanted.
func (t *Tables) others(want []Table) []ID {
	return slices.DeleteFunc(slices.Clone(t.names), func(id ID) bool {
		return slices.ContainsFunc(want, func(w Table) bool { return w.Layout.ID == id })
	})
}

// isThere tells whether a table has objects.
func (t *Tables) isThere(ctx context.Context, id ID) (bool, error) {
	is, err := t.objects(ctx, id)
	return err == nil && len(is.rules)+len(is.elements) > 0, err
}

func (t *Tables) removeTable(ctx context.Context, id ID) error {
	delete(t.last, id)
	t.partial = t.partial || id == t.names[0]
	tx := t.all[id].NewTransaction()
	// Add first: deleting a table that is not there would be an error.
	tx.Add(&knftables.Table{})
	tx.Delete(&knftables.Table{})
	if err := t.run(ctx, t.all[id], tx); err != nil {
		return fmt.Errorf("remove nft table %s: %w", id, err)
	}
	return nil
}

// writeGuard makes a guard anew, in one transaction.
func (t *Tables) writeGuard(ctx context.Context, w *Table) error {
	table := t.all[w.Layout.ID]
	tx := table.NewTransaction()
	// Add first: deleting a table that is not there would be an error.
	tx.Add(&knftables.Table{})
	tx.Delete(&knftables.Table{})
	w.layOut(tx)
	w.refill(tx)
	return t.wroteGuard(t.run(ctx, table, tx), w)
}

// changeGuard removes elements that are not wanted any more, which comes before the change of
// the other tables, or adds new ones, which comes behind it.
func (t *Tables) changeGuard(ctx context.Context, w *Table, add bool) error {
	last := t.last[w.Layout.ID]
	if last == nil {
		if !add {
			return nil
		}
		return t.writeGuard(ctx, w)
	}
	next, c := w, t.difference(w)
	if !add {
		c.fresh, next = nil, &Table{Layout: last.Layout, Elements: last.Elements.changed(c.gone, true)}
	}
	return t.wroteGuard(t.write(ctx, w.Layout.ID, c), next)
}

// wroteGuard notes the content of a guard after a write, or its failure.
func (t *Tables) wroteGuard(err error, next *Table) error {
	delete(t.gone, next.Layout.ID)
	if err != nil {
		delete(t.last, next.Layout.ID)
		return fmt.Errorf("write nft table %s: %w", next.Layout, err)
	}
	t.last[next.Layout.ID] = next
	return nil
}
