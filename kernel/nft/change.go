package nft

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/namegate/namegate/kernel/nft/wire"
	"sigs.k8s.io/knftables"
)

// change is what one table has to become another content: it gets objects and elements, and
// loses others. Elements and chains refer to the new objects, and no more to the old.
type change struct {
	chains, goneChains []*Chain
	sets, goneSets     []*Set
	fresh, gone        Elements
	there              map[string]*Chain // the chains that are there, by their names
	wanted             []*Set            // all sets that are to be there
}

// difference returns the change of a table to what is wanted.
func (t *Tables) difference(w *Table) (c change) {
	c.wanted, c.fresh, c.gone = slices.Collect(w.sets()), Elements{}, Elements{}
	last := t.last[w.Layout.ID]
	if !slices.Equal(last.Chains, w.Chains) {
		c.there = byName(last.Chains, func(c *Chain) string { return c.Name })
		wanted := byName(w.Chains, func(c *Chain) string { return c.Name })
		for _, chain := range w.Chains {
			if was := c.there[chain.Name]; was == nil || was != chain && !slices.Equal(was.Rules, chain.Rules) {
				c.chains = append(c.chains, chain)
			}
		}
		c.goneChains = slices.DeleteFunc(slices.Clone(last.Chains), func(c *Chain) bool { return wanted[c.Name] != nil })
	}
	c.sets = missing(w.Sets, last.Sets)
	c.goneSets = missing(last.Sets, w.Sets)
	for _, s := range c.wanted { // those of others go with their sets
		if was, is := last.Elements[s.Name], w.Elements[s.Name]; s.Fill != Renewed && !slices.Equal(was, is) {
			c.gone[s.Name], c.fresh[s.Name] = without(was, is), without(is, was)
		}
	}
	return c
}

// each calls do with the elements of sets.
func (m Elements) each(sets []*Set, do func(*knftables.Element)) {
	for _, s := range sets {
		for _, text := range m[s.Name] {
			do(s.element(text))
		}
	}
}

// without returns the elements that others, which are sorted too, do not have.
func without(all, others []string) (out []string) {
	for _, text := range all {
		if _, there := slices.BinarySearch(others, text); !there {
			out = append(out, text)
		}
	}
	return out
}

// changed returns the elements with more, or without these.
func (m Elements) changed(more Elements, remove bool) Elements {
	out := maps.Clone(m)
	if out == nil {
		out = Elements{}
	}
	for set, all := range more {
		if out[set] = without(m[set], all); !remove {
			out[set] = slices.Sorted(slices.Values(slices.Concat(out[set], all)))
		}
	}
	return out
}

func byName[E any](all []*E, name func(*E) string) map[string]*E {
	out := make(map[string]*E, len(all))
	for _, e := range all {
		out[name(e)] = e
	}
	return out
}

// missing returns the sets that others do not have.
func missing(sets, others []*Set) []*Set {
	if slices.Equal(sets, others) {
		return nil
	}
	there := byName(others, func(s *Set) string { return s.Name })
	return slices.DeleteFunc(slices.Clone(sets), func(s *Set) bool { return there[s.Name] != nil })
}

// steps divides a change into transactions. A packet that is under way meets the elements of
// the new content and the rules of the old, of which a new chain has none: it comes before the
// elements that lead to it. A new base chain asks sets that are filled with the elements, and comes behind them. Without
// chains, elements need no program (see write).
func (c change) steps() []change {
	first, second, last := change{sets: c.sets}, c, change{}
	second.chains, second.sets = nil, nil
	for _, chain := range c.chains {
		of := &first
		if c.there[chain.Name] != nil {
			of = &second
		} else if chain.Hook != nil {
			of = &last
		}
		of.chains = append(of.chains, chain)
	}
	return []change{first, second, last}
}

// transaction is what a change is rendered to: one of the program nft, or one by netlink.
type transaction interface {
	Add(o knftables.Object)
	Flush(o knftables.Object)
	Delete(o knftables.Object)
}

// write makes a change in one transaction: by the program nft where chains come or change, else by netlink.
func (t *Tables) write(ctx context.Context, id ID, c change) error {
	if len(c.chains) > 0 {
		return t.runNft(ctx, id, c.writeTo)
	}
	return t.runElements(ctx, id, slices.Concat(c.sets, c.wanted), c.writeTo)
}

// runNft has the program nft make a transaction, if that changes something.
func (t *Tables) runNft(ctx context.Context, id ID, write func(transaction)) error {
	tx := t.all[id].NewTransaction()
	if write(tx); tx.NumOperations() == 0 {
		return nil
	}
	return t.run(ctx, t.all[id], tx)
}

// runElements makes a transaction without chains that come, if it changes something, with sets that come. In the kernel
// it goes by netlink: the program nft would read every set of the host, and close a socket (see renew).
func (t *Tables) runElements(ctx context.Context, id ID, coming []*Set, write func(transaction)) error {
	if !t.direct {
		return t.runNft(ctx, id, write)
	}
	last := t.last[id]
	if last == nil {
		last = &Table{Layout: &Layout{}}
	}
	sets := byName(slices.Concat(last.Layout.Sets, last.Sets, coming), func(s *Set) string { return s.Name })
	m := wire.New(knftables.Family(id.Family), id.Name, func(name string) ([]string, bool) {
		if s := sets[name]; s != nil {
			return s.types(), s.Fill == Ranges
		}
		return nil, false
	})
	if write(m); m.Empty() {
		return nil
	}
	return t.generations.Own(func() error {
		_, err := m.Commit(t.kernel.changes)
		return err
	})
}

// writeTo renders the change.
func (c change) writeTo(tx transaction) {
	for _, s := range c.sets {
		tx.Add(s.object())
	}
	for _, chain := range c.chains {
		chain.writeTo(tx)
	}
	c.gone.each(c.wanted, func(e *knftables.Element) { tx.Delete(e) })
	c.fresh.each(c.wanted, func(e *knftables.Element) { tx.Add(e) })
	for _, chain := range c.goneChains {
		tx.Flush(&knftables.Chain{Name: chain.Name})
	}
	for _, chain := range c.goneChains {
		tx.Delete(&knftables.Chain{Name: chain.Name})
	}
	for _, s := range c.goneSets {
		tx.Delete(reference(s.Name, s.Value != ""))
	}
}

// AddSets makes sets ahead of a content that has them. The next that does not removes them.
func (t *Tables) AddSets(ctx context.Context, id ID, sets []*Set) error {
	next := &Table{}
	if last := t.last[id]; last != nil {
		*next = *last
	}
	c := change{sets: missing(sets, next.Sets)}
	if len(c.sets) == 0 {
		return nil
	}
	if err := t.write(ctx, id, c); err != nil {
		t.partial = true
		return fmt.Errorf("add sets to nft table %s: %w", id, err)
	}
	if next.Layout != nil {
		next.Sets = slices.Concat(next.Sets, c.sets)
		t.last[id] = next
	}
	return nil
}

// ChangeElements adds elements to a table, or removes them, ahead of a content that has them or not: one that is there,
// or is not, is no error. A table of another layout does not change.
func (t *Tables) ChangeElements(ctx context.Context, id ID, elements Elements, remove bool) error {
	last := t.last[id]
	if t.otherLayout || last == nil {
		return nil
	}
	sets := slices.Collect(last.sets())
	err := t.runElements(ctx, id, nil, func(tx transaction) {
		// Also before their removal: one that is not there is an error.
		elements.each(sets, func(e *knftables.Element) { tx.Add(e) })
		if remove {
			elements.each(sets, func(e *knftables.Element) { tx.Delete(e) })
		}
	})
	if err != nil {
		t.partial = true
		return fmt.Errorf("change elements of nft table %s: %w", id, err)
	}
	next := *last
	next.Elements = last.Elements.changed(elements, remove)
	t.last[id] = &next
	return nil
}
