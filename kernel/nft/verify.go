package nft

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/namegate/namegate/kernel/nft/timed"
	"github.com/namegate/namegate/kernel/nft/wire"
	"go4.org/netipx"
	"sigs.k8s.io/knftables"
)

// contents is the content of a table, in the form in which the wanted table and the table
// in the kernel are compared.
type contents struct {
	// hooks has each chain as "TYPE HOOK PRIORITY", with "policy drop" where another program
	// has set that, "" for a regular chain. It is nil where the reader has none.
	hooks map[string]string
	// rules has the comments of each chain's rules in order: a comment is the digest of
	// its rule's text (see ruleDigest).
	rules map[string][]string
	// forms has the form of each map and of each set of entries, of their keys and of grants. It is nil where the
	// reader has none.
	forms map[string]setForm
	// dormant: the kernel asks none of the table's chains.
	dormant bool
	// elements has each set's and map's elements; those of an interval set are merged
	// into ranges. Volatile sets and sets that the layout does not have are left out.
	elements map[string]elements
	maps     map[string]bool // which of these are maps
}

func newContents() *contents {
	return &contents{hooks: map[string]string{}, rules: map[string][]string{}, elements: map[string]elements{}, forms: map[string]setForm{}, maps: map[string]bool{}}
}

// ruleDigest is the comment of a rule. nft prints a rule in other words than it was
// written in, so rules are compared by comments: the kernel keeps a comment as it is,
// and a program that replaces a rule replaces its comment too.
func ruleDigest(rule string) string {
	sum := sha256.Sum256([]byte(rule))
	return hex.EncodeToString(sum[:6])
}

// skeleton is the content of a table of ours without elements: the layout, interpreted by
// a fake.
type skeleton struct {
	*contents
	family knftables.Family
	table  string
	// types has the words of each set's key and, after them, of each map's value.
	types map[string][]string
	// intervals are the sets of prefixes.
	intervals map[string]bool
}

// skeletonOf interprets the layout of the table i.
func (t *Tables) skeletonOf(i int, tiers tierObjects) (*skeleton, error) {
	return newSkeleton(tableFamilies[i], TableName, func(tx *knftables.Transaction) {
		t.layout(i, tx, tiers)
		commented{tx}.Add(&knftables.Chain{Name: t.sign(i)})
	})
}

// newSkeleton interprets a layout.
func newSkeleton(family knftables.Family, table string, layout func(tx *knftables.Transaction)) (*skeleton, error) {
	fake := knftables.NewFake(family, table)
	tx := fake.NewTransaction()
	layout(tx)
	if err := fake.Run(context.Background(), tx); err != nil {
		return nil, fmt.Errorf("lay out nft table %s %s: %w", family, table, err)
	}
	s := &skeleton{contents: newContents(), family: family, table: table, types: map[string][]string{}, intervals: map[string]bool{}}
	for name, c := range fake.Table.Chains {
		s.hooks[name] = ""
		if c.Hook != nil {
			s.hooks[name] = fmt.Sprint(*c.Type, " ", *c.Hook, " ", *c.Priority)
		}
		s.rules[name] = comments(c.Rules)
	}
	for name, set := range fake.Table.Sets {
		s.types[name] = wire.Parts(set.Type + set.TypeOf)
		s.intervals[name] = slices.Contains(set.Flags, knftables.IntervalFlag)
		s.elements[name] = nil
		if timed.IsSet(name) || timed.IsKeySet(name) {
			s.forms[name] = formOf(&set.Set)
		}
	}
	for name, m := range fake.Table.Maps {
		key, value, _ := strings.Cut(m.Type, " : ")
		s.types[name] = append(wire.Parts(key), wire.Parts(value)...)
		s.elements[name], s.maps[name], s.forms[name] = nil, true, mapFormOf(key, value)
	}
	return s, nil
}

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

// wanted is the content of a table in a state.
func (s *skeleton) wanted(all elements) *contents {
	w := &contents{hooks: s.hooks, rules: s.rules, elements: map[string]elements{}, forms: s.forms}
	for name := range s.elements {
		w.elements[name] = elements{}
	}
	for key, e := range all {
		if e.Family == s.family && e.Table == s.table {
			w.elements[e.Set+e.Map][key] = e
		}
	}
	for name := range s.intervals {
		if s.intervals[name] {
			w.elements[name] = merged(w.elements[name])
		}
	}
	return w
}

// merged joins the prefixes and ranges of an interval set into the ranges that they cover
// together: nft may store prefixes side by side as one range.
func merged(all elements) elements {
	out := elements{}
	var ranges []netipx.IPRange
	var of *knftables.Element
	for key, e := range all {
		if r, ok := wire.ParseRange(e.Key[0]); ok {
			ranges, of = append(ranges, r), e
		} else {
			out[key] = e
		}
	}
	slices.SortFunc(ranges, func(a, b netipx.IPRange) int { return a.From().Compare(b.From()) })
	var joined []netipx.IPRange
	for _, r := range ranges {
		if n := len(joined); n > 0 && joined[n-1].To().Next() == r.From() {
			joined[n-1] = netipx.IPRangeFrom(joined[n-1].From(), r.To())
		} else {
			joined = append(joined, r)
		}
	}
	for _, r := range joined {
		e := rangeElement(r, of.Family, of.Table, of.Set)
		out[elementKey(e)] = e
	}
	return out
}

// rangeElement is a range as an element of an interval set.
func rangeElement(r netipx.IPRange, f knftables.Family, table, set string) *knftables.Element {
	return &knftables.Element{Family: f, Table: table, Set: set, Key: []string{r.String()}}
}

// deviations returns the names of the objects of a table that differ from the wanted
// ones. anew: the table has to be made anew, because it has an object that the layout
// does not have and no state adds, a chain has another hook, a map or an entry set another
// form, or the table is dormant.
func (w *contents) deviations(f knftables.Family, table string, is *contents) (out []string, anew bool) {
	if len(is.rules) == 0 && len(is.elements) == 0 {
		return []string{fmt.Sprintf("nft table %s %s", f, table)}, false
	}
	name := func(kind, object string) string { return fmt.Sprintf("nft %s %s %s %s", kind, f, table, object) }
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
		other := there && is.forms != nil && is.forms[set] != w.forms[set]
		if !there || other || !volatile(set) && !maps.EqualFunc(elements, have, sameElement) {
			out = append(out, name("set", set))
		}
		anew = anew || other
	}
	for chain := range is.rules {
		if _, ours := w.rules[chain]; !ours {
			out, anew = append(out, name("chain", chain)), anew || !ofTiers(chain)
		}
	}
	for set := range is.elements {
		if _, ours := w.elements[set]; !ours {
			out, anew = append(out, name("set", set)), anew || !ofTiers(set)
		}
	}
	if is.dormant {
		out, anew = append(out, fmt.Sprintf("nft table %s %s", f, table)), true
	}
	slices.Sort(out)
	return out, anew
}

// sameElement: elements of one key are equal (see elementKey).
func sameElement(_, _ *knftables.Element) bool { return true }

// Verify compares both tables in the kernel with the layout and the state, and returns
// the names of the tables, chains, sets and maps that are missing or differ, sorted.
// What another program changes while the tables are read is read once more. The elements
// of the dead-man switches and of sets that the kernel fills do not count. After a
// deviation the next Apply or Rewrite writes everything.
func (t *Tables) Verify(ctx context.Context, s State) ([]string, error) {
	var out []string
	tiers := s.tierObjects(t.tiers)
	want := s.elements(tiers)
	err := t.generations.Exclude(func() error {
		for i := range t.both() {
			found, err := t.verifyTable(ctx, i, tiers, want)
			if err != nil {
				return err
			}
			out = append(out, found...)
		}
		found, err := t.verifyNet(ctx, s)
		out = append(out, found...)
		return err
	})
	if err != nil || len(out) > 0 {
		return out, err
	}
	return t.CheckKeys(tiers.entries)
}

// verifyTable is Verify for one table.
func (t *Tables) verifyTable(ctx context.Context, i int, tiers tierObjects, all elements) ([]string, error) {
	s, err := t.skeleton(i, tiers)
	if err != nil {
		return nil, err
	}
	found, anew, err := t.compare(ctx, s, all)
	if len(found) > 0 {
		t.partial = true
		t.otherLayout = t.otherLayout || anew
	}
	return found, err
}

// compare names the objects of a table that deviate. anew is as deviations has it.
func (t *Tables) compare(ctx context.Context, s *skeleton, all elements) (found []string, anew bool, err error) {
	want := s.wanted(all)
	var last []string
	for range verifyReadings {
		is, err := t.contents(ctx, s)
		if err != nil {
			return nil, false, err
		}
		if found, anew = want.deviations(s.family, s.table, is); len(found) == 0 || slices.Equal(found, last) {
			return found, anew, nil
		}
		last = found
	}
	return last, false, nil
}

// verifyReadings bounds the readings of a table that another program keeps changing. A
// listing is no snapshot: the same deviation has to show in two of them.
const verifyReadings = 4

// contents reads a table in the kernel.
func (t *Tables) contents(ctx context.Context, s *skeleton) (*contents, error) {
	is, err := t.objects(ctx, s.family, s.table)
	if err != nil {
		return nil, err
	}
	for name := range is.elements {
		if _, ours := s.types[name]; !ours || volatile(name) {
			continue
		}
		found, err := t.elements(ctx, s, name)
		if err != nil {
			return nil, err
		}
		all := elements{}
		for _, e := range found {
			if !isHeld(e) {
				all[elementKey(e)] = e
			}
		}
		if s.intervals[name] {
			all = merged(all)
		}
		is.elements[name] = all
	}
	return is, nil
}

// objects reads the objects of a table in the kernel.
func (t *Tables) objects(ctx context.Context, f knftables.Family, table string) (*contents, error) {
	is, err := t.reader.objects(ctx, f, table)
	if err != nil {
		return nil, fmt.Errorf("read nft table %s %s: %w", f, table, err)
	}
	return is, nil
}

// elements reads a set or map of the layout.
func (t *Tables) elements(ctx context.Context, s *skeleton, set string) ([]*knftables.Element, error) {
	out, err := t.reader.elements(ctx, s, set)
	if err != nil {
		return nil, fmt.Errorf("list nft set %s %s %s: %w", s.family, s.table, set, err)
	}
	return out, nil
}

// reader reads our tables.
type reader interface {
	// objects returns the chains, the rules and the sets and maps of a table, these
	// without elements. A table that is not there has none.
	objects(ctx context.Context, family knftables.Family, table string) (*contents, error)
	// elements returns the elements of a set or map of the layout, those of an interval
	// set as ranges or prefixes. A missing set has none.
	elements(ctx context.Context, s *skeleton, set string) ([]*knftables.Element, error)
}

// interfaceReader reads tables by knftables, whose fakes have no kernel.
type interfaceReader map[tableID]knftables.Interface

// tableID is a table by its family and name.
type tableID struct {
	family knftables.Family
	name   string
}

// objects implements reader. It has no hooks.
func (r interfaceReader) objects(ctx context.Context, family knftables.Family, table string) (*contents, error) {
	of := r[tableID{family, table}]
	if of == nil {
		return newContents(), nil
	}
	names, err := of.ListAll(ctx)
	if err != nil && !knftables.IsNotFound(err) {
		return nil, err
	}
	out := newContents()
	out.hooks, out.forms = nil, nil
	for _, c := range names["chain"] {
		rules, err := of.ListRules(ctx, c)
		if err != nil && !knftables.IsNotFound(err) {
			return nil, fmt.Errorf("list nft chain %s: %w", c, err)
		}
		out.rules[c] = comments(rules)
	}
	for _, kind := range []string{"set", "map"} {
		for _, name := range names[kind] {
			out.elements[name], out.maps[name] = elements{}, kind == "map"
		}
	}
	return out, nil
}

// elements implements reader.
func (r interfaceReader) elements(ctx context.Context, s *skeleton, set string) ([]*knftables.Element, error) {
	kind := "set"
	if s.maps[set] {
		kind = "map"
	}
	out, err := r[tableID{s.family, s.table}].ListElements(ctx, kind, set)
	if err != nil && !knftables.IsNotFound(err) {
		return nil, err
	}
	for _, e := range out {
		e.Family = s.family
	}
	return out, nil
}
