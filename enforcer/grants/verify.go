package grants

import (
	"maps"
	"slices"

	"github.com/namegate/namegate/kernel/ipset"
)

// WrongSizes returns the sets of which the kernel holds fewer entries than it must, or
// more than it may, and the sizes of all sets of the kernel. Without sets in the table the
// kernel is asked only with always.
func (t *Table) WrongSizes(always bool) ([]*Set, map[string]int, error) {
	type counted struct {
		set         *Set
		least, most int
	}
	var before []counted
	for s := range t.All() {
		least, most := s.bounds()
		before = append(before, counted{s, least, most})
	}
	if len(before) == 0 && !always {
		return nil, nil, nil
	}
	sizes, err := t.cfg.Sets.Sizes()
	if err != nil {
		return nil, nil, err
	}
	var maybe []*Set
	for _, c := range before {
		// Changes of the table meanwhile are no deviation.
		least, most := c.set.bounds()
		if t.outside(c.set, sizes, min(least, c.least), max(most, c.most)) {
			maybe = append(maybe, c.set)
		}
	}
	if len(maybe) == 0 {
		return nil, sizes, nil
	}
	wrong, err := t.confirm(maybe)
	return wrong, sizes, err
}

// confirm returns the sets whose size is wrong while the table does not change.
func (t *Table) confirm(maybe []*Set) ([]*Set, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var names []string
	for _, s := range maybe {
		names = append(names, s.name)
	}
	sizes, err := t.cfg.Sets.Sizes(names...)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(maybe, func(s *Set) bool {
		least, most := s.bounds()
		return t.get(s.key) != s || !t.outside(s, sizes, least, most)
	}), nil
}

// bounds returns how many entries the kernel must hold and may hold of a set.
func (s *Set) bounds() (least, most int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.entries) - len(s.uncertain), len(s.entries)
}

// outside tells whether the kernel holds less of a set than least or more than most.
// While two agents grant, the kernel also holds the entries of the other.
func (t *Table) outside(s *Set, sizes map[string]int, least, most int) bool {
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

// Repair removes foreign entries from sets, writes their certain grants again, and returns
// the sets that deviated.
func (t *Table) Repair(sets []*Set) (repaired []*Set, err error) {
	for _, s := range sets {
		deviated, err := t.repair(s)
		if err != nil {
			return repaired, err
		}
		if deviated {
			repaired = append(repaired, s)
		}
	}
	return repaired, nil
}

func (t *Table) repair(s *Set) (deviated bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d, err := t.difference(s)
	if err != nil || !d.Any() {
		return false, err
	}
	return true, ipset.Repair(t.cfg.Sets, s.header(), d, t.certain(s))
}
