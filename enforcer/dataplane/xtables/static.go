package xtables

import (
	"maps"
	"slices"
	"strings"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/ipset"
)

// static is the sets that are always there.
type static struct {
	sets ipset.Interface
	// counts are how many entries the sets hold whose write is complete.
	counts map[string]int
}

// phase is when static sets are written.
type phase uint8

const (
	ahead phase = iota // while a state is staged
	beforeRules
	afterRules
)

// due tells what of a set is written in a phase: where an address is at home is known
// before the rules that ask, and for as long as they do; whose packets are dispatched,
// before any answer by a snapshot leaves, which its pod may use before it is isolated.
func (p phase) due(set string) (add, remove bool) {
	if p == ahead {
		return strings.HasSuffix(set, setDispatched), false
	}
	if strings.HasSuffix(set, setHome) {
		return p == beforeRules, p == afterRules
	}
	return p == beforeRules, p == beforeRules
}

// write makes the sets hold a state, as a delta to their content in the kernel.
func (s *static) write(st dataplane.State, now phase) error {
	due := func(set string) bool {
		add, remove := now.due(set)
		return add || remove
	}
	for name, want := range staticEntries(st, due) {
		add, remove := now.due(name)
		delete(s.counts, name)
		_, have, err := s.sets.Read(name)
		if err != nil {
			return err
		}
		surplus := make(map[ipset.Entry]bool, len(have))
		for _, h := range have {
			surplus[h.Key()] = true
		}
		var missing []ipset.Entry
		wanted := make(map[ipset.Entry]bool, len(want))
		for _, w := range want {
			wanted[w.Key()] = true
			if !surplus[w.Key()] {
				missing = append(missing, w)
			}
			delete(surplus, w.Key())
		}
		if add {
			if err := s.sets.Add(name, missing...); err != nil {
				return err
			}
		}
		if remove {
			if err := s.sets.Delete(name, slices.Collect(maps.Keys(surplus))...); err != nil {
				return err
			}
			s.counts[name] = len(wanted)
		}
	}
	return nil
}

// staticEntries renders a state, for the sets that are asked for.
func staticEntries(st dataplane.State, asked func(set string) bool) map[string][]ipset.Entry {
	out := map[string][]ipset.Entry{}
	for _, s := range StaticSets() {
		if asked(s.Name) {
			out[s.Name] = nil
		}
	}
	add := func(set string, entry ipset.Entry) {
		name := setPrefix(versionOf(entry.Addr)) + set
		if entries, is := out[name]; is {
			out[name] = append(entries, entry)
		}
	}
	for _, p := range st.Subjects.Sorted() {
		if p.Staged {
			for _, a := range p.Dispatched() {
				add(setDispatched, ipset.Entry{Addr: a})
			}
		}
		if !p.Isolated {
			continue
		}
		for _, a := range p.Addrs {
			add(setSelected, ipset.Entry{Addr: a})
			if h, ok := p.Homes[a]; ok && byIface(p, h) {
				add(setHome, ipset.Entry{Addr: a, Iface: h.Iface})
			}
		}
	}
	return out
}

func everySet(string) bool { return true }

// countsDiffer tells whether a set holds another number of entries than was written.
func (s *static) countsDiffer() (bool, error) {
	if len(s.counts) == 0 {
		return false, nil
	}
	sizes, err := s.sets.Sizes(slices.Collect(maps.Keys(s.counts))...)
	if err != nil {
		return false, err
	}
	for name, want := range s.counts {
		if size, there := sizes[name]; !there || size != want {
			return true, nil
		}
	}
	return false, nil
}

// verify returns the sets that lack an entry of a state, or hold one too many after all
// was written.
func (s *static) verify(st dataplane.State) (out []string, err error) {
	wanted := staticEntries(st, everySet)
	for _, set := range StaticSets() {
		d, err := s.compare(set, wanted[set.Name])
		if err != nil {
			return out, err
		}
		if d.Any() {
			out = append(out, set.Name)
		}
	}
	return out, nil
}

// compare compares one set. While a state is being written it may hold more than that
// wants.
func (s *static) compare(set ipset.Set, want []ipset.Entry) (ipset.Difference, error) {
	_, complete := s.counts[set.Name]
	return ipset.Compare(s.sets, set, want, func(ipset.Entry) bool { return complete })
}

// repair repairs the named sets.
func (s *static) repair(st dataplane.State, names []string) error {
	wanted := staticEntries(st, everySet)
	for _, set := range StaticSets() {
		if !slices.Contains(names, set.Name) {
			continue
		}
		want := wanted[set.Name]
		d, err := ipset.Compare(s.sets, set, want, func(ipset.Entry) bool { return true })
		if err != nil {
			return err
		}
		delete(s.counts, set.Name)
		if err := ipset.Repair(s.sets, set, d, want); err != nil {
			return err
		}
		s.counts[set.Name] = len(want)
	}
	return nil
}

// restore creates the sets that another program destroyed before any rule asked them:
// without them every write fails.
func (s *static) restore() error {
	for _, set := range StaticSets() {
		err := s.sets.Ensure(set)
		if ipset.IsMismatch(err) {
			err = s.sets.Replace(set)
			delete(s.counts, set.Name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
