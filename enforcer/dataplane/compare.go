package dataplane

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Deviation is a grant that is not as wanted: missing, changed or foreign.
type Deviation struct {
	Set  GrantSet
	Addr netip.Addr
}

// compare has sets of rules that deny or pass come first.
func (d Deviation) compare(o Deviation) int {
	if a, b := d.Set.Rule.Lasting(), o.Set.Rule.Lasting(); a != b {
		return map[bool]int{true: -1, false: 1}[a]
	}
	return cmp.Or(strings.Compare(string(d.Set.Rule), string(o.Set.Rule)), d.Set.Subject.Compare(o.Set.Subject), strings.Compare(d.Set.Pod.String(), o.Set.Pod.String()),
		strings.Compare(d.Set.Name, o.Set.Name), strings.Compare(string(d.Set.Ports), string(o.Set.Ports)), d.Addr.Compare(o.Addr))
}

// Comparison compares the grants that the kernel holds with the desired ones, one by one.
type Comparison struct {
	// Sets yields the desired sets. Members and Freeze are as Grants has them.
	Sets    iter.Seq[GrantSet]
	Members func(set GrantSet) []Frozen
	Freeze  func(set GrantSet, f func([]Frozen))
	// List hands over all that the kernel holds, also of sets that are not desired.
	List  func(each func(GrantSet, []Grant)) error
	Apply func([]GrantOp)
	// Coexisting tells whether another agent writes too.
	Coexisting func() bool
}

// seen is what a comparison found of a grant that deviates.
type seen struct {
	listed, wanted   bool
	comment, desired string
}

// Verify returns the deviations, those of rules that deny or pass first. The same deviation has
// to show twice and to be the same, as grants change between two readings.
func (c *Comparison) Verify() ([]Deviation, error) {
	first, err := c.deviations()
	if err != nil || len(first) == 0 {
		return nil, err
	}
	second, err := c.deviations()
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(second, func(d Deviation, is seen) bool { was, there := first[d]; return !there || was != is })
	return slices.SortedFunc(maps.Keys(second), Deviation.compare), nil
}

func (c *Comparison) deviations() (map[Deviation]seen, error) {
	is := map[GrantSet]map[netip.Addr]*Grant{}
	err := c.List(func(set GrantSet, part []Grant) {
		if is[set] == nil {
			is[set] = map[netip.Addr]*Grant{}
		}
		for _, g := range part {
			is[set][g.Addr] = &g
		}
	})
	if err != nil {
		return nil, err
	}
	out, coexisting := map[Deviation]seen{}, c.Coexisting()
	compared := map[GrantSet]bool{} // each with those that share its name, as Members renders them all
	for set := range c.Sets {
		if compared[set] {
			continue
		}
		all := c.Members(set)
		for i := range all {
			compared[all[i].Set] = true
			all[i].compare(is[all[i].Set], coexisting, out)
		}
	}
	if coexisting { // the other agent's
		return out, nil
	}
	for set, foreign := range is {
		for a, g := range foreign {
			out[Deviation{set, a}] = seen{listed: true, comment: g.Comment}
		}
	}
	return out, nil
}

// compare adds the deviations of one set, whose grants in the kernel are is. It leaves the foreign
// ones in is.
func (f *Frozen) compare(is map[netip.Addr]*Grant, coexisting bool, out map[Deviation]seen) {
	for i := range f.Certain {
		want := &f.Certain[i]
		if g := is[want.Addr]; differs(f.Set, want, g, coexisting) {
			d := seen{listed: g != nil, wanted: true, desired: want.Comment}
			if g != nil {
				d.comment = g.Comment
			}
			out[Deviation{f.Set, want.Addr}] = d
		}
		delete(is, want.Addr)
	}
	for a := range f.Uncertain {
		delete(is, a)
	}
}

// frozenOf returns one set of those that share its name.
func frozenOf(all []Frozen, set GrantSet) (out Frozen) {
	for i := range all {
		if all[i].Set == set {
			return all[i]
		}
	}
	return out
}

// slack is by how much the timeout of a grant may differ from the wanted one.
const slack = 5 * time.Second

// differs tells whether a grant is not as wanted; is is nil where the kernel has none. At its end
// the kernel may have ended a grant of a rule that denies or passes.
func differs(set GrantSet, want, is *Grant, coexisting bool) bool {
	switch {
	case is == nil:
		return !set.Rule.Lasting() || !want.Due
	case coexisting: // the other agent moves deadlines and has other names
		return false
	default:
		return is.Comment != want.Comment || is.Timeout-want.Timeout > slack || want.Timeout-is.Timeout > slack && !want.Due
	}
}

// Repair writes the grants again that Verify found, and removes foreign ones: those of rules that
// deny or pass are written first and removed last.
func (c *Comparison) Repair(found []Deviation) error {
	n := slices.IndexFunc(found, func(d Deviation) bool { return !d.Set.Rule.Lasting() })
	if n < 0 {
		n = len(found)
	}
	if err := c.repair(found[:n], true, false); err != nil {
		return err
	}
	if err := c.repair(found[n:], true, true); err != nil {
		return err
	}
	return c.repair(found[:n], false, true)
}

func (c *Comparison) repair(found []Deviation, write, remove bool) error {
	for len(found) > 0 {
		set, wrong := found[0].Set, map[netip.Addr]bool{}
		for ; len(found) > 0 && found[0].Set == set; found = found[1:] {
			wrong[found[0].Addr] = true
		}
		ops := []GrantOp{{Set: set, Remove: true}, {Set: set}}
		held := false
		repair := func(all []Frozen) {
			held = true
			frozen := frozenOf(all, set)
			for _, want := range frozen.Certain {
				if wrong[want.Addr] && write {
					want.Held = Unknown
					ops[1].Grants = append(ops[1].Grants, want)
				}
				delete(wrong, want.Addr)
			}
			for a := range wrong {
				if remove && !frozen.Uncertain[a] {
					ops[0].Grants = append(ops[0].Grants, Grant{Addr: a})
				}
			}
			c.Apply(ops)
		}
		if c.Freeze(set, repair); !held {
			repair(nil)
		}
		for i := range ops {
			if err := ops[i].Err; err != nil && !(ops[i].Remove && IsNoSet(err)) {
				return err
			}
		}
	}
	return nil
}
