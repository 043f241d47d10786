package grants

import (
	"maps"
	"slices"

	"github.com/namegate/namegate/kernel/ipset"
)

// WrongSizes returns the sets of which the kernel holds fewer entries than it must, or
// more than it may, and the sizes of all sets of the kernel. Without sets in the table the
// kernel is asked only with always.
func (t *Table) WrongSizes(always bool) (wrong []*Set, sizes map[string]int, err error) {
	if !always && len(*t.pods.Load()) == 0 {
		return nil, nil, nil
	}
	if sizes, err = t.cfg.Sets.Sizes(); err != nil {
		return nil, nil, err
	}
	var names []string
	for s := range t.All() {
		if t.outside(s, sizes) {
			wrong, names = append(wrong, s), append(names, s.name)
		}
	}
	if len(wrong) == 0 {
		return nil, sizes, nil
	}
	// The table may have changed after the kernel was asked: again, while it does not.
	t.mu.Lock()
	defer t.mu.Unlock()
	again, err := t.cfg.Sets.Sizes(names...)
	if err != nil {
		return nil, sizes, err
	}
	return slices.DeleteFunc(wrong, func(s *Set) bool { return t.get(s.key) != s || !t.outside(s, again) }), sizes, nil
}

// outside tells whether the kernel holds too few or too many entries of a set. It may
// hold the uncertain ones and, while another agent grants, that one's.
func (t *Table) outside(s *Set, sizes map[string]int) bool {
	s.mu.RLock()
	least, most := len(s.entries)-len(s.uncertain), len(s.entries)
	s.mu.RUnlock()
	size, there := sizes[s.name]
	return !there || size < least || size > most && !t.cfg.Coexisting()
}

// Deviating returns the sets of a wrong size, and those whose members deviated at the last
// Compare and still do: a repair may have to wait.
func (t *Table) Deviating() ([]*Set, error) {
	wrong, _, err := t.WrongSizes(false)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	differing := slices.Collect(maps.Keys(t.differing))
	t.mu.Unlock()
	for _, s := range differing {
		differs, err := t.Compare(s)
		if err != nil {
			return wrong, err
		}
		if differs && !slices.Contains(wrong, s) {
			wrong = append(wrong, s)
		}
	}
	return wrong, nil
}

// Compare tells whether the members of a set differ from the certain grants, and keeps the
// result for Deviating. A set that is not in the table any more does not differ.
func (t *Table) Compare(s *Set) (differs bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d, err := t.difference(s)
	if err != nil {
		return false, err
	}
	if d.Any() {
		t.differing[s] = true
	} else {
		delete(t.differing, s)
	}
	return d.Any(), nil
}

// difference compares a set with the certain grants. The caller holds mu.
func (t *Table) difference(s *Set) (d ipset.Difference, err error) {
	if t.get(s.key) != s {
		return d, nil
	}
	coexisting := t.cfg.Coexisting()
	d, err = ipset.Compare(t.cfg.Sets, s.header(), t.certain(s), func(entry ipset.Entry) bool {
		return s.entries[entry.Addr] == nil && !coexisting
	})
	if coexisting {
		d.Changed = nil // the other agent moves deadlines
	}
	return d, err
}

// certain returns the entries of a set that the kernel acknowledged. The caller holds mu.
func (t *Table) certain(s *Set) []ipset.Entry {
	at := t.cfg.Clock.read()
	var out []ipset.Entry
	for a, g := range s.entries {
		if !s.uncertain[a] {
			out = append(out, t.entry(a, g, at))
		}
	}
	return out
}

// Repair removes foreign entries from a set and writes its certain grants again. It tells
// whether the set deviated.
func (t *Table) Repair(s *Set) (deviated bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d, err := t.difference(s)
	if err != nil || !d.Any() {
		return false, err
	}
	return true, ipset.Repair(t.cfg.Sets, s.header(), d, t.certain(s))
}
