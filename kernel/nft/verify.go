package nft

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

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
	// forms has the form of each set and map, in what is wanted of those that stay. It is nil where the
	// reader has none.
	forms map[string]setForm
	// dormant: the kernel asks none of the table's chains.
	dormant bool
	// elements has each set and map, and the elements; those of an interval set are merged
	// into ranges. Those of volatile sets and of sets that the layout does not have are left out.
	elements Elements
	maps     map[string]bool // which of these are maps
	sets     map[string]*Set // of what is wanted
}

func newContents() *contents {
	return &contents{hooks: map[string]string{}, rules: map[string][]string{}, elements: Elements{}, forms: map[string]setForm{}, maps: map[string]bool{}, sets: map[string]*Set{}}
}

// ruleDigest is the comment of a rule. nft prints a rule in other words than it was
// written in, so rules are compared by comments: the kernel keeps a comment as it is,
// and a program that replaces a rule replaces its comment too.
func ruleDigest(rule string) string {
	sum := sha256.Sum256([]byte(rule))
	return hex.EncodeToString(sum[:6])
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

// merged joins the prefixes and ranges of an interval set into the ranges that they cover
// together: nft may store prefixes side by side as one range.
func merged(all []string) (out []string) {
	var ranges []netipx.IPRange
	for _, text := range all {
		if r, ok := wire.ParseRange(text); ok {
			ranges = append(ranges, r)
		} else {
			out = append(out, text)
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
		out = append(out, r.String())
	}
	slices.Sort(out)
	return out
}

// scope is what of a table is compared.
type scope uint8

const (
	ofLayout scope = iota // whatever passes, and whatever elements are there
	objects               // whatever elements are there
	all
)

// deviations returns the names of the objects of a table that differ from the wanted
// ones. anew: the table has to be made anew, because it has an object that the layout
// does not have and that does not pass, a chain has another hook, a set that stays another
// form, or the table is dormant.
func (is *contents) deviations(l *Layout, want *contents, of scope) (out []string, anew bool) {
	if len(is.rules) == 0 && len(is.elements) == 0 {
		return []string{fmt.Sprintf("nft table %s", l)}, false
	}
	name := func(kind, object string) string { return fmt.Sprintf("nft %s %s %s", kind, l, object) }
	for chain, rules := range want.rules {
		have, there := is.rules[chain]
		moved := there && is.hooks != nil && is.hooks[chain] != want.hooks[chain]
		if !there || moved || !slices.Equal(rules, have) {
			out = append(out, name("chain", chain))
		}
		anew = anew || moved
	}
	for set, s := range want.sets {
		have, there := is.elements[set]
		other := there && is.forms != nil && (s.stays() || is.maps[set]) && is.forms[set] != want.forms[set]
		if !there || other || of == all && !s.Fill.volatile() && !slices.Equal(want.elements[set], have) {
			out = append(out, name("set", set))
		}
		anew = anew || other
	}
	for chain := range is.rules {
		if _, ours := want.rules[chain]; !ours && !(of == ofLayout && l.passes(chain)) {
			out, anew = append(out, name("chain", chain)), anew || !l.passes(chain)
		}
	}
	for set := range is.elements {
		if want.sets[set] == nil && !(of == ofLayout && l.passes(set)) {
			out, anew = append(out, name("set", set)), anew || !l.passes(set)
		}
	}
	if is.dormant {
		out, anew = append(out, fmt.Sprintf("nft table %s", l)), true
	}
	slices.Sort(out)
	return out, anew
}

// Verify compares the tables in the kernel with what is wanted, and returns
// the names of the tables, chains, sets and maps that are missing or differ, sorted.
// What another program changes while the tables are read is read once more. Elements that come and go by themselves
// do not count. After a deviation the next Apply or Rewrite writes everything.
func (t *Tables) Verify(ctx context.Context, want []Table) ([]string, error) {
	var out []string
	err := t.generations.Exclude(func() error {
		for i := range want {
			found, err := t.verifyTable(ctx, &want[i])
			if err != nil {
				return err
			}
			out = append(out, found...)
		}
		for _, id := range t.others(want) {
			there, err := t.isThere(ctx, id)
			if err != nil {
				return err
			}
			if there {
				delete(t.gone, id)
				out, t.partial = append(out, fmt.Sprintf("nft table %s", id)), true
			}
		}
		return nil
	})
	if err != nil || len(out) > 0 {
		return out, err
	}
	return t.Store.CheckKeys(entriesOf(want))
}

// verifyTable is Verify for one table.
func (t *Tables) verifyTable(ctx context.Context, w *Table) ([]string, error) {
	found, anew, err := t.compare(ctx, w)
	switch {
	case len(found) == 0:
	case w.Layout.Guard:
		delete(t.last, w.Layout.ID)
	default:
		t.partial = true
		t.otherLayout = t.otherLayout || anew
	}
	return found, err
}

// compare names the objects of a table that deviate. anew is as deviations has it.
func (t *Tables) compare(ctx context.Context, w *Table) (found []string, anew bool, err error) {
	want := w.contents()
	var last []string
	for range verifyReadings {
		is, err := t.contents(ctx, w.Layout.ID, want)
		if err != nil {
			return nil, false, err
		}
		if found, anew = is.deviations(w.Layout, want, all); len(found) == 0 || slices.Equal(found, last) {
			return found, anew, nil
		}
		last = found
	}
	return last, false, nil
}

// verifyReadings bounds the readings of a table that another program keeps changing. A
// listing is no snapshot: the same deviation has to show in two of them.
const verifyReadings = 4

// contents reads a table in the kernel, with the elements of wanted sets.
func (t *Tables) contents(ctx context.Context, id ID, want *contents) (*contents, error) {
	is, err := t.objects(ctx, id)
	if err != nil {
		return nil, err
	}
	for name := range is.elements {
		s := want.sets[name]
		if s == nil || s.Fill.volatile() {
			continue
		}
		found, err := t.elements(ctx, id, s)
		if err != nil {
			return nil, err
		}
		found = slices.DeleteFunc(found, func(text string) bool { return text == s.Renewed })
		if s.Fill == Ranges {
			found = merged(found)
		}
		if slices.Sort(found); slices.Equal(found, want.elements[name]) {
			found = want.elements[name] // which is there anyway
		}
		is.elements[name] = found
	}
	return is, nil
}

// objects reads the objects of a table in the kernel.
func (t *Tables) objects(ctx context.Context, id ID) (*contents, error) {
	is, err := t.reader.objects(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("read nft table %s: %w", id, err)
	}
	return is, nil
}

// Objects returns the names of the chains and of the sets and maps of a table in the kernel, none of one that is not there.
func (t *Tables) Objects(ctx context.Context, id ID) (chains, sets map[string]bool, err error) {
	is, err := t.objects(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	chains, sets = map[string]bool{}, map[string]bool{}
	for name := range is.rules {
		chains[name] = true
	}
	for name := range is.elements {
		sets[name] = true
	}
	return chains, sets, nil
}

// Elements returns the elements of sets or maps in the kernel, also those that another agent wrote, none of one that is
// not there. Ranges are joined.
func (t *Tables) Elements(ctx context.Context, id ID, sets ...*Set) (all []*knftables.Element, err error) {
	for _, s := range sets {
		found, err := t.elements(ctx, id, s)
		if err != nil {
			return nil, err
		}
		for _, text := range found {
			all = append(all, s.element(text))
		}
	}
	return all, nil
}

// elements are the elements of a set or map in the kernel, as a Table has them, in no order.
func (t *Tables) elements(ctx context.Context, id ID, s *Set) ([]string, error) {
	found, err := t.reader.elements(ctx, id, s)
	if err != nil {
		return nil, fmt.Errorf("list nft set %s %s: %w", id, s.Name, err)
	}
	return found, nil
}

// reader reads our tables.
type reader interface {
	// objects returns the chains, the rules and the sets and maps of a table, these
	// without elements. A table that is not there has none.
	objects(ctx context.Context, id ID) (*contents, error)
	// elements returns the elements of a set or map, those of ranges as ranges or prefixes. A missing set has none.
	elements(ctx context.Context, id ID, s *Set) ([]string, error)
}

// interfaceReader reads tables by knftables, whose fakes have no kernel.
type interfaceReader map[ID]knftables.Interface

// objects implements reader. It has no hooks.
func (r interfaceReader) objects(ctx context.Context, id ID) (*contents, error) {
	of := r[id]
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
			out.elements[name], out.maps[name] = nil, kind == "map"
		}
	}
	return out, nil
}

// elements implements reader.
func (r interfaceReader) elements(ctx context.Context, id ID, s *Set) ([]string, error) {
	kind := "set"
	if s.Value != "" {
		kind = "map"
	}
	of := r[id]
	if of == nil {
		return nil, nil
	}
	all, err := of.ListElements(ctx, kind, s.Name)
	if err != nil && !knftables.IsNotFound(err) {
		return nil, err
	}
	out := Elements{}
	for _, e := range all {
		if s.Value == "" {
			out.Add(s.Name, e.Key...)
		} else {
			out.AddMap(s.Name, strings.Join(e.Key, nextWord), e.Value...)
		}
	}
	return out[s.Name], nil
}
