package nft

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"sigs.k8s.io/knftables"
)

// contents is what a table consists of, in the form in which the wanted table and the
// table in the kernel are compared.
type contents struct {
	// hooks has each chain as "TYPE HOOK PRIORITY", "" for a regular chain. It is nil
	// where the reader cannot tell.
	hooks map[string]string
	// rules has the comments of each chain's rules in order: a comment is the digest of
	// its rule's text (see ruleDigest).
	rules map[string][]string
	// dormant: the kernel asks none of the table's chains.
	dormant bool
	// elements has the keys of each set's and map's elements, as elementKey renders
	// them; the elements of an interval set are merged into ranges.
	elements map[string]map[string]bool
}

func newContents() *contents {
	return &contents{hooks: map[string]string{}, rules: map[string][]string{}, elements: map[string]map[string]bool{}}
}

// ruleDigest is the comment of a rule. nft prints a rule in other words than it was
// written in, so rules are compared by comments: the kernel keeps a comment as it is,
// and a program that replaces a rule replaces its comment too.
func ruleDigest(rule string) string {
	sum := sha256.Sum256([]byte(rule))
	return hex.EncodeToString(sum[:6])
}

// skeleton is what a table of ours consists of without elements: the layout, interpreted
// by a fake.
type skeleton struct {
	*contents
	// types has the words of each set's key and, after them, of each map's value.
	types map[string][]string
	// intervals are the sets of prefixes, maps the maps.
	intervals, maps map[string]bool
}

// skeletonOf interprets the layout of the table i.
func (t *Tables) skeletonOf(i int) (*skeleton, error) {
	if t.skeletons[i] != nil {
		return t.skeletons[i], nil
	}
	fake := knftables.NewFake(tableFamilies[i], TableName)
	tx := fake.NewTransaction()
	t.layout(i, tx)
	if err := fake.Run(context.Background(), tx); err != nil {
		return nil, fmt.Errorf("lay out nft table %s %s: %w", tableFamilies[i], TableName, err)
	}
	s := &skeleton{contents: newContents(), types: map[string][]string{}, intervals: map[string]bool{}, maps: map[string]bool{}}
	for name, c := range fake.Table.Chains {
		s.hooks[name] = ""
		if c.Hook != nil {
			s.hooks[name] = fmt.Sprint(*c.Type, " ", *c.Hook, " ", *c.Priority)
		}
		s.rules[name] = comments(c.Rules)
	}
	for name, set := range fake.Table.Sets {
		s.types[name] = typeWords(set.Type + set.TypeOf)
		s.intervals[name] = slices.Contains(set.Flags, knftables.IntervalFlag)
		s.elements[name] = nil
	}
	for name, m := range fake.Table.Maps {
		key, value, _ := strings.Cut(m.Type, " : ")
		s.types[name] = append(typeWords(key), typeWords(value)...)
		s.elements[name], s.maps[name] = nil, true
	}
	t.skeletons[i] = s
	return s, nil
}

func typeWords(s string) []string { return strings.Split(s, " . ") }

func comments(rules []*knftables.Rule) []string {
	out := []string{}
	for _, r := range rules {
		comment := ""
		if r.Comment != nil {
			comment = *r.Comment
		}
		out = append(out, comment)
	}
	return out
}

// wanted is what a table is to consist of in a state.
func (s *skeleton) wanted(f knftables.Family, elements map[string]*knftables.Element) *contents {
	w := &contents{hooks: s.hooks, rules: s.rules, elements: map[string]map[string]bool{}}
	for name := range s.elements {
		w.elements[name] = map[string]bool{}
	}
	for _, e := range elements {
		if e.Family == f {
			w.elements[e.Set+e.Map][elementKey(e)] = true
		}
	}
	for name := range s.intervals {
		if s.intervals[name] {
			w.elements[name] = merged(f, name, slices.Collect(maps.Keys(w.elements[name])))
		}
	}
	return w
}

// merged renders the prefixes of an interval set, given as element keys, as the ranges
// that they cover together: nft may store prefixes side by side as one range.
func merged(f knftables.Family, set string, keys []string) map[string]bool {
	var ranges []addrRange
	for _, k := range keys {
		text := strings.Split(k, "|")[3]
		p, err := netip.ParsePrefix(text)
		if err != nil {
			a, err := netip.ParseAddr(text)
			if err != nil {
				continue
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		ranges = append(ranges, addrRange{p.Addr(), lastAddr(p)})
	}
	return mergedRanges(f, set, ranges)
}

// addrRange is every address from first to last.
type addrRange struct{ first, last netip.Addr }

func mergedRanges(f knftables.Family, set string, ranges []addrRange) map[string]bool {
	slices.SortFunc(ranges, func(a, b addrRange) int { return a.first.Compare(b.first) })
	var joined []addrRange
	for _, r := range ranges {
		if n := len(joined); n > 0 && joined[n-1].last.Next() == r.first {
			joined[n-1].last = r.last
		} else {
			joined = append(joined, r)
		}
	}
	out := map[string]bool{}
	for _, r := range joined {
		out[elementKey(&knftables.Element{Family: f, Set: set, Key: []string{r.first.String() + "-" + r.last.String()}})] = true
	}
	return out
}

// lastAddr is the highest address of a prefix.
func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(b)*8; bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// deviations returns the names of the objects of a table that are not as they are
// wanted. anew tells that the table has to be made anew for it: something is there that
// the layout does not have, a chain has another hook, or the table is dormant.
func (w *contents) deviations(f knftables.Family, is *contents) (out []string, anew bool) {
	if len(is.rules) == 0 && len(is.elements) == 0 {
		return []string{fmt.Sprintf("nft table %s %s", f, TableName)}, false
	}
	name := func(kind, object string) string { return fmt.Sprintf("nft %s %s %s %s", kind, f, TableName, object) }
	for chain, rules := range w.rules {
		have, there := is.rules[chain]
		moved := there && is.hooks != nil && is.hooks[chain] != w.hooks[chain]
		if !there || moved || !slices.Equal(rules, have) {
			out = append(out, name("chain", chain))
		}
		anew = anew || moved
	}
	for set, elements := range w.elements {
		have, there := is.elements[set]
		if !there || !volatile(set) && !maps.Equal(elements, have) {
			out = append(out, name("set", set))
		}
	}
	for chain := range is.rules {
		if _, ours := w.rules[chain]; !ours {
			out, anew = append(out, name("chain", chain)), true
		}
	}
	for set := range is.elements {
		if _, ours := w.elements[set]; !ours {
			out, anew = append(out, name("set", set)), true
		}
	}
	if is.dormant {
		out, anew = append(out, fmt.Sprintf("nft table %s %s", f, TableName)), true
	}
	slices.Sort(out)
	return out, anew
}

// Verify compares both tables in the kernel with the layout and the state, and returns
// the names of the tables, chains, sets and maps that are missing or differ, sorted.
// What another program changes while the tables are read is read once more. The elements
// of the dead-man switch and of sets that the kernel fills do not count. After a
// deviation the next Apply or Rewrite writes everything.
func (t *Tables) Verify(ctx context.Context, s State) ([]string, error) {
	var out []string
	want := s.elements()
	err := t.ledger.exclude(func() error {
		for i := range t.both() {
			found, err := t.verifyTable(ctx, i, want)
			if err != nil {
				return err
			}
			out = append(out, found...)
		}
		return nil
	})
	return out, err
}

// verifyTable is Verify for one table.
func (t *Tables) verifyTable(ctx context.Context, i int, elements map[string]*knftables.Element) ([]string, error) {
	f := tableFamilies[i]
	s, err := t.skeletonOf(i)
	if err != nil {
		return nil, err
	}
	want := s.wanted(f, elements)
	var last []string
	for range verifyReadings {
		is, err := t.read(ctx, i, s)
		if err != nil {
			return nil, fmt.Errorf("read nft table %s %s: %w", f, TableName, err)
		}
		found, anew := want.deviations(f, is)
		if len(found) == 0 {
			return nil, nil
		}
		if slices.Equal(found, last) {
			t.partial = true
			t.strange = t.strange || anew
			return found, nil
		}
		last = found
	}
	t.partial = true
	return last, nil
}

// verifyReadings bounds the readings of a table that another program keeps changing. A
// listing is no snapshot: the same deviation has to show in two of them.
const verifyReadings = 4

// readByInterface reads a table through the interface.
func (t *Tables) readByInterface(ctx context.Context, i int, s *skeleton) (*contents, error) {
	table, out := t.both()[i], newContents()
	out.hooks = nil
	names, err := t.names(ctx, i)
	if err != nil {
		return nil, err
	}
	for _, c := range names["chain"] {
		rules, err := table.ListRules(ctx, c)
		if err != nil && !knftables.IsNotFound(err) {
			return nil, fmt.Errorf("list nft chain %s: %w", c, err)
		}
		out.rules[c] = comments(rules)
	}
	elements := map[string]*knftables.Element{}
	if err := t.readTable(ctx, i, names, elements, func(string) bool { return true }); err != nil {
		return nil, err
	}
	for _, name := range slices.Concat(names["set"], names["map"]) {
		out.elements[name] = map[string]bool{}
	}
	for _, e := range elements {
		out.elements[e.Set+e.Map][elementKey(e)] = true
	}
	for name := range out.elements {
		if s.intervals[name] {
			out.elements[name] = merged(tableFamilies[i], name, slices.Collect(maps.Keys(out.elements[name])))
		}
	}
	return out, nil
}
