package grants

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy"
)

// Deviation is a grant in the nft tables that is not as wanted: missing, changed or foreign.
type Deviation struct {
	Set  dataplane.GrantSet
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

// seen is what a comparison found of a grant that deviates.
type seen struct {
	listed, wanted   bool
	comment, desired string
}

// Verify compares the grants that the nft tables have, of rules and with Config.InPlace all others, with
// the wanted ones. It returns the deviations, those of rules that deny or pass first. The same deviation has
// to show twice and to be the same, as grants change between two readings.
func (t *Table) Verify(rules []policy.RuleID) ([]Deviation, error) {
	first, err := t.deviations(rules)
	if err != nil || len(first) == 0 {
		return nil, err
	}
	second, err := t.deviations(rules)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(second, func(d Deviation, is seen) bool { was, there := first[d]; return !there || was != is })
	return slices.SortedFunc(maps.Keys(second), Deviation.compare), nil
}

func (t *Table) deviations(rules []policy.RuleID) (map[Deviation]seen, error) {
	keys := ofRules(rules)
	var sets []*set
	for s := range t.all() {
		if slices.Contains(rules, s.key.Rule) || s.key.Rule == "" && t.cfg.InPlace {
			sets, keys = append(sets, s), append(keys, s.key)
		}
	}
	held, err := list(t.cfg.Kernel, keys)
	if err != nil {
		return nil, err
	}
	out, coexisting := map[Deviation]seen{}, t.cfg.Coexisting()
	for _, s := range sets {
		t.compare(s, held[s.key], coexisting, out)
		delete(held, s.key)
	}
	for key, part := range held {
		if !coexisting { // else they are the other agent's
			for _, is := range part {
				out[Deviation{key, is.Addr}] = seen{listed: true, comment: is.Comment}
			}
		}
	}
	return out, nil
}

// compare adds the deviations of one set. New grants wait for a part of it.
func (t *Table) compare(s *set, part []dataplane.Grant, coexisting bool, out map[Deviation]seen) {
	held := make(map[netip.Addr]*dataplane.Grant, len(part))
	for i := range part {
		held[part[i].Addr] = &part[i]
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.eachGrant(s, false, func(want *dataplane.Grant, uncertain bool) {
		is := held[want.Addr]
		if delete(held, want.Addr); !uncertain && differs(s, want, is, coexisting) {
			d := seen{listed: is != nil, wanted: true, desired: want.Comment}
			if is != nil {
				d.comment = is.Comment
			}
			out[Deviation{s.key, want.Addr}] = d
		}
	})
	for a, is := range held {
		if !coexisting {
			out[Deviation{s.key, a}] = seen{listed: true, comment: is.Comment}
		}
	}
}

// slack is by how much the timeout of a grant may differ from the wanted one.
const slack = 5 * time.Second

// differs tells whether a grant is not as wanted; is is nil where the kernel has none. At its end
// the kernel may have ended a grant of a rule that denies or passes.
func differs(s *set, want, is *dataplane.Grant, coexisting bool) bool {
	switch {
	case is == nil:
		return !s.key.Rule.Lasting() || !want.Due
	case coexisting: // the other agent moves deadlines and has other names
		return false
	default:
		return is.Comment != want.Comment || is.Timeout-want.Timeout > slack || want.Timeout-is.Timeout > slack && !want.Due
	}
}

// Repair writes the grants again that Verify found, and removes foreign ones: those of rules that
// deny or pass are written first and removed last.
func (t *Table) Repair(found []Deviation) error {
	for _, remove := range [...]bool{false, true} {
		for rest := found; len(rest) > 0; {
			n := 1
			for n < len(rest) && rest[n].Set == rest[0].Set {
				n++
			}
			if err := t.repairSet(rest[:n], remove); err != nil {
				return err
			}
			rest = rest[n:]
		}
		slices.Reverse(found)
	}
	return nil
}

// repairSet writes or removes grants of one set.
func (t *Table) repairSet(found []Deviation, remove bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	key, at := found[0].Set, t.cfg.Clock.read()
	s := t.get(key)
	var ops []dataplane.Grant
	for _, d := range found {
		switch foreign := s == nil || s.at(d.Addr) == nil; {
		case foreign != remove:
		case foreign:
			ops = append(ops, dataplane.Grant{Addr: d.Addr})
		case !s.uncertain[d.Addr]:
			g := t.render(s.at(d.Addr), at)
			g.Held = dataplane.Unknown
			ops = append(ops, g)
		}
	}
	err := t.apply(key, remove, ops)
	if remove {
		return ignoreNoSet(err)
	}
	return err
}
