package nft

import (
	"context"
	"slices"
	"strings"

	"github.com/namegate/namegate/kernel/nft/wire"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"
)

// change is what one table has to become another state: it gets objects and elements, and
// loses others. Elements and chains refer to the new objects, and no more to the old.
type change struct {
	added, removed tierObjects
	fresh, gone    []*knftables.Element
	peers          map[string]PeerKind // of all sets of peers, by their names
	there          map[string][]string // the rules of chains that are there, by their names
}

// differences returns the changes of both tables, in the order of both.
func (t *Tables) differences(tiers tierObjects, want elements) []change {
	out := make([]change, len(tableFamilies))
	at := map[knftables.Family]*change{}
	for i, f := range tableFamilies {
		at[f] = &out[i]
	}
	inet := at[knftables.InetFamily]
	inet.added, inet.removed, inet.peers = tiers.without(t.tiers, true), t.tiers.without(tiers, false), map[string]PeerKind{}
	inet.there = t.tiers.rules()
	for _, p := range slices.Concat(t.tiers.sets, tiers.sets) {
		inet.peers[p.Name] = p.Kind
	}
	_, sets := inet.removed.names() // with their elements
	for key, e := range t.applied {
		if _, keep := want[key]; !keep && !slices.Contains(sets, e.Set) {
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

// write makes the change of the table i in one transaction: by the program nft where chains come
// or change, else by netlink.
func (t *Tables) write(ctx context.Context, i int, c change) error {
	if t.direct && len(c.added.chains) == 0 {
		s, err := t.plainSkeleton(i)
		if err != nil {
			return err
		}
		m := wire.New(tableFamilies[i], TableName)
		c.writeTo(m, s)
		return t.commitBatch(m)
	}
	tx := t.both()[i].NewTransaction()
	c.added.layOut(layout{tx})
	for _, e := range c.gone {
		tx.Delete(e)
	}
	for _, e := range c.fresh {
		tx.Add(e)
	}
	c.removed.remove(tx)
	if tx.NumOperations() == 0 {
		return nil
	}
	return t.run(ctx, t.both()[i], tx)
}

// writeTo writes the change of the table of which s is the layout without tiers, but for chains
// that are added.
func (c change) writeTo(m *wire.Batch, s *skeleton) {
	for _, f := range families {
		for _, p := range c.added.sets {
			types, interval := p.Kind.types(f)
			flags := uint32(0)
			if interval {
				flags = unix.NFT_SET_INTERVAL
			}
			m.AddSet(p.setName(f), types, flags)
		}
		for _, e := range c.added.entries {
			addSet(m, e.of(f))
		}
		for _, g := range c.added.grants {
			addSet(m, g.of(f))
		}
	}
	typesOf := func(set string) ([]string, bool) { return c.typesOf(s, set) }
	elementStep{true, c.gone}.writeTo(m, typesOf)
	elementStep{false, c.fresh}.writeTo(m, typesOf)
	chains, sets := c.removed.names()
	for _, name := range chains {
		m.FlushChain(name)
	}
	for _, name := range chains {
		m.DeleteChain(name)
	}
	for _, name := range sets {
		m.DeleteSet(name)
	}
}

// addSet adds a set of entries or of grants.
func addSet(m *wire.Batch, set *knftables.Set) {
	m.AddSet(set.Name, wire.Types(set.Type), formOf(set).flags)
}

// typesOf returns the words for the types of a set's or map's key and value, and whether the
// set holds intervals.
func (c change) typesOf(s *skeleton, name string) (types []string, interval bool) {
	if types, static := s.types[name]; static {
		return types, s.intervals[name]
	}
	for _, f := range families {
		peers := strings.TrimSuffix(strings.TrimPrefix(name, peersPrefix), "-"+f.suffix)
		if kind, known := c.peers[peers]; known {
			return kind.types(f)
		}
	}
	return nil, false
}

// types returns the words for the types of the key of a set of peers, and whether it holds
// intervals.
func (k PeerKind) types(f family) (types []string, interval bool) {
	if k == PeerPorts {
		return []string{f.addr, "inet_proto", "inet_service"}, false
	}
	return []string{f.addr}, k == PeerNetworks
}

// names returns the names of the chains and of the sets, these with the family.
func (o tierObjects) names() (chains, sets []string) {
	for _, c := range o.chains {
		chains = append(chains, c.name)
	}
	for _, f := range families {
		for _, s := range o.sets {
			sets = append(sets, s.setName(f))
		}
		for _, s := range o.entries {
			sets = append(sets, s.of(f).Name)
		}
		for _, s := range o.grants {
			sets = append(sets, s.of(f).Name)
		}
	}
	return chains, sets
}
