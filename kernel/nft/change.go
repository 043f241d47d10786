package nft

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/namegate/namegate/kernel/nft/wire"
	"sigs.k8s.io/knftables"
)

// change is what one table has to become another content: it gets objects and elements, and
// loses others. Elements and chains refer to the new objects, and no more to the old.
type change struct {
	chains, goneChains []*Chain
	sets, goneSets     []*Set
	fresh, gone        []*knftables.Element
	there              map[string]*Chain // the chains that are there, by their names
	wanted             []*Set            // all sets that are to be there
}

// difference returns the change of a table to what is wanted.
func (t *Tables) difference(w *Table) (c change) {
	c.wanted = w.Sets
	last := t.last[w.Layout.ID]
	c.there = byName(last.Chains, func(c *Chain) string { return c.Name })
	wanted := byName(w.Chains, func(c *Chain) string { return c.Name })
	for _, chain := range w.Chains {
		if was := c.there[chain.Name]; was == nil || was != chain && !slices.Equal(was.Rules, chain.Rules) {
			c.chains = append(c.chains, chain)
		}
	}
	c.goneChains = slices.DeleteFunc(slices.Clone(last.Chains), func(c *Chain) bool { return wanted[c.Name] != nil })
	c.sets = missing(w.Sets, last.Sets)
	c.goneSets = missing(last.Sets, w.Sets)
	left := byName(c.goneSets, func(s *Set) string { return s.Name }) // they go with their elements
	renewed := map[string]bool{}
	for s := range w.sets() {
		renewed[s.Name] = s.Fill == Renewed
	}
	for key, e := range last.Elements {
		if _, keep := w.Elements[key]; !keep && left[e.Set] == nil && !renewed[e.Set] {
			c.gone = append(c.gone, e)
		}
	}
	for key, e := range w.Elements {
		if _, there := last.Elements[key]; !there && !renewed[e.Set] {
			c.fresh = append(c.fresh, e)
		}
	}
	return c
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
	there := byName(others, func(s *Set) string { return s.Name })
	return slices.DeleteFunc(slices.Clone(sets), func(s *Set) bool { return there[s.Name] != nil })
}

// steps divides a change into transactions. A packet that is under way meets the elements of
// the new content and the rules of the old, of which a new chain has none: it comes before the
// elements that lead to it.
func (c change) steps() []change {
	var ahead, with []*Chain
	fresh := map[string]bool{}
	for _, chain := range c.chains {
		// Base chains ask sets that are filled with the elements.
		if c.there[chain.Name] != nil || chain.Hook != nil {
			with = append(with, chain)
		} else {
			ahead, fresh["goto "+chain.Name] = append(ahead, chain), true
		}
	}
	if !slices.ContainsFunc(c.fresh, func(e *knftables.Element) bool { return len(e.Value) == 1 && fresh[e.Value[0]] }) {
		return []change{c}
	}
	first, last := change{chains: ahead, sets: c.sets}, c
	last.chains, last.sets = with, nil
	return []change{first, last}
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
	bySet := func(a, b *knftables.Element) int { return strings.Compare(a.Set+a.Map, b.Set+b.Map) }
	for _, e := range slices.SortedFunc(slices.Values(c.gone), bySet) {
		tx.Delete(e)
	}
	for _, e := range slices.SortedFunc(slices.Values(c.fresh), bySet) {
		tx.Add(e)
	}
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
	err := t.runElements(ctx, id, nil, func(tx transaction) {
		for _, e := range elements { // also before their removal: one that is not there is an error
			tx.Add(e)
		}
		for _, e := range elements {
			if remove {
				tx.Delete(e)
			}
		}
	})
	if err != nil {
		t.partial = true
		return fmt.Errorf("change elements of nft table %s: %w", id, err)
	}
	next := *last
	if next.Elements = maps.Clone(last.Elements); next.Elements == nil {
		next.Elements = Elements{}
	}
	for key, e := range elements {
		if remove {
			delete(next.Elements, key)
		} else {
			next.Elements[key] = e
		}
	}
	t.last[id] = &next
	return nil
}
