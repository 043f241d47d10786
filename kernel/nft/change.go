package nft

import (
	"context"
	"slices"
	"strings"

	"github.com/namegate/namegate/kernel/nft/wire"
	"sigs.k8s.io/knftables"
)

// change is what one table has to become another state: it gets objects and elements, and
// loses others. Elements and chains refer to the new objects, and no more to the old.
type change struct {
	added, removed tierObjects
	fresh, gone    []*knftables.Element
	peers          map[string]*knftables.Set // all sets of peers, by their names
	there          map[string][]string       // the rules of chains that are there, by their names
}

// differences returns the changes of both tables, in the order of both.
func (t *Tables) differences(tiers tierObjects, want elements) []change {
	out := make([]change, len(tableFamilies))
	at := map[knftables.Family]*change{}
	for i, f := range tableFamilies {
		at[f] = &out[i]
	}
	inet := at[knftables.InetFamily]
	inet.added, inet.removed, inet.peers = tiers.without(t.tiers, true), t.tiers.without(tiers, false), map[string]*knftables.Set{}
	inet.there = t.tiers.rules()
	for _, s := range (tierObjects{sets: slices.Concat(t.tiers.sets, tiers.sets)}).allSets() {
		inet.peers[s.Name] = s
	}
	left := map[string]bool{} // sets that go with their elements
	for _, s := range inet.removed.allSets() {
		left[s.Name] = true
	}
	for key, e := range t.applied {
		if _, keep := want[key]; !keep && !left[e.Set] {
			at[e.Family].gone = append(at[e.Family].gone, e)
		}
	}
	for key, e := range want {
		if _, there := t.applied[key]; !there {
			at[e.Family].fresh = append(at[e.Family].fresh, e)
		}
	}
	return out
}

// steps divides a change into transactions. A packet that is under way meets the elements of
// the new state and the rules of the old, of which a new chain has none: it comes before the
// elements that lead to it.
func (c change) steps() []change {
	var ahead, with []*tierChain
	fresh := map[string]bool{}
	for _, chain := range c.added.chains {
		// Base chains ask sets that are filled with the elements.
		if _, there := c.there[chain.name]; there || chain.base != nil {
			with = append(with, chain)
		} else {
			ahead, fresh["goto "+chain.name] = append(ahead, chain), true
		}
	}
	if !slices.ContainsFunc(c.fresh, func(e *knftables.Element) bool { return len(e.Value) == 1 && fresh[e.Value[0]] }) {
		return []change{c}
	}
	first, last := change{added: c.added, peers: c.peers}, c
	first.added.chains, last.added = ahead, tierObjects{chains: with}
	return []change{first, last}
}

// transaction is what a change is rendered to: one of the program nft, or one by netlink.
type transaction interface {
	Add(o knftables.Object)
	Flush(o knftables.Object)
	Delete(o knftables.Object)
}

// write makes the change of the table i in one transaction: by the program nft where chains come
// or change, else by netlink.
func (t *Tables) write(ctx context.Context, i int, c change) error {
	if len(c.added.chains) > 0 {
		return t.runNft(ctx, t.both()[i], c.writeTo)
	}
	return t.runElements(ctx, t.both()[i], func() (*skeleton, error) { return t.plainSkeleton(i) }, c.peers, c.writeTo)
}

// writeTo renders the change.
func (c change) writeTo(tx transaction) {
	c.added.layOut(layout{commented{tx}})
	bySet := func(a, b *knftables.Element) int { return strings.Compare(a.Set+a.Map, b.Set+b.Map) }
	for _, e := range slices.SortedFunc(slices.Values(c.gone), bySet) {
		tx.Delete(e)
	}
	for _, e := range slices.SortedFunc(slices.Values(c.fresh), bySet) {
		tx.Add(e)
	}
	c.removed.remove(tx)
}

// runNft has the program nft make a transaction, if that changes something.
func (t *Tables) runNft(ctx context.Context, table knftables.Interface, write func(transaction)) error {
	tx := table.NewTransaction()
	if write(tx); tx.NumOperations() == 0 {
		return nil
	}
	return t.run(ctx, table, tx)
}

// runElements makes a transaction without chains that come, if it changes something, for a table of
// which of is the layout, but for peers. In the kernel it goes by netlink: the program nft would read every
// set of the host, and close a socket (see nfattr.Sockets).
func (t *Tables) runElements(ctx context.Context, table knftables.Interface, of func() (*skeleton, error), peers map[string]*knftables.Set, write func(transaction)) error {
	if !t.direct {
		return t.runNft(ctx, table, write)
	}
	s, err := of()
	if err != nil {
		return err
	}
	m := wire.New(s.family, s.table, func(name string) ([]string, bool) {
		if set := peers[name]; set != nil {
			return wire.Parts(set.Type), len(set.Flags) > 0
		}
		return s.types[name], s.intervals[name]
	})
	if write(m); m.Empty() {
		return nil
	}
	return t.generations.Own(func() error {
		_, err := m.Commit(t.kernel.sockets)
		return err
	})
}

// changeElements changes elements of the layout of the table inet.
func (t *Tables) changeElements(ctx context.Context, write func(transaction)) error {
	return t.runElements(ctx, t.inet, func() (*skeleton, error) { return t.plainSkeleton(0) }, nil, write)
}
