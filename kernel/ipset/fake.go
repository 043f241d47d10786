package ipset

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Fake is an Interface in memory for tests of the packages above. Its entries end by the
// clock it is given. The zero Fake is not usable; see NewFake.
type Fake struct {
	now func() time.Time

	mu   sync.Mutex
	sets map[string]*fakeSet
	refs map[string]bool
}

type fakeSet struct {
	Set
	entries map[Entry]fakeEntry
}

type fakeEntry struct {
	until   time.Time // zero: for ever
	comment string
}

var _ Interface = (*Fake)(nil)

// NewFake returns an empty fake whose time is now's.
func NewFake(now func() time.Time) *Fake {
	return &Fake{now: now, sets: map[string]*fakeSet{}, refs: map[string]bool{}}
}

// Refer marks a set as referred to by a rule, or no longer: Destroy then says busy.
func (f *Fake) Refer(name string, on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refs[name] = on
}

// Ensure implements Interface.
func (f *Fake) Ensure(s Set) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if old := f.sets[s.Name]; old != nil {
		if old.Type != s.Type || old.IPv6 != s.IPv6 {
			return refused("create", s.Name, errMismatch)
		}
		return nil
	}
	if len(s.Name) > NameLengthMax || s.Name == "" {
		return refused("create", s.Name, fmt.Errorf("name is not 1 to %d bytes", NameLengthMax))
	}
	f.sets[s.Name] = &fakeSet{Set: s, entries: map[Entry]fakeEntry{}}
	return nil
}

// Destroy implements Interface.
func (f *Fake) Destroy(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.sets[name] == nil:
		return refused("destroy", name, errNotFound)
	case f.refs[name]:
		return refused("destroy", name, errBusy)
	}
	delete(f.sets, name)
	return nil
}

// Add adds entries to a set, as Apply does.
func (f *Fake) Add(name string, entries ...Entry) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(entries) == 0 {
		return nil
	}
	s := f.sets[name]
	if s == nil {
		return refused("add", name, errNotFound)
	}
	for _, e := range entries {
		switch {
		case e.Addr.Is6() != s.IPv6:
			return refused("add", name, fmt.Errorf("%s is of the other family", e.Addr))
		case e.New && !s.Counters:
			return refused("add", name, errors.New("the set has no counters"))
		}
		if _, there := s.entries[e.Key()]; !there && s.MaxElem != 0 && len(s.entries) >= int(s.MaxElem) {
			return refused("add", name, errFull)
		}
		var until time.Time
		if e.Timeout != 0 {
			until = f.now().Add(time.Duration(seconds(e.Timeout)) * time.Second)
		}
		s.entries[e.Key()] = fakeEntry{until, e.Comment}
	}
	return nil
}

// Delete deletes entries of a set, as Apply does.
func (f *Fake) Delete(name string, entries ...Entry) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(entries) == 0 {
		return nil
	}
	s := f.sets[name]
	if s == nil {
		return refused("delete", name, errNotFound)
	}
	for _, e := range entries {
		delete(s.entries, e.Key())
	}
	return nil
}

// Swap implements Interface.
func (f *Fake) Swap(name, other string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	a, b := f.sets[name], f.sets[other]
	switch {
	case a == nil || b == nil:
		return refused("swap", name, errNotFound)
	case a.Type != b.Type || a.IPv6 != b.IPv6:
		return refused("swap", name, errMismatch)
	}
	a.Name, b.Name = other, name
	f.sets[name], f.sets[other] = b, a
	return nil
}

// Apply implements Interface.
func (f *Fake) Apply(ops []Op) {
	for i := range ops {
		if op := &ops[i]; op.Delete {
			op.Err = f.Delete(op.Set, op.Entries...)
		} else {
			op.Err = f.Add(op.Set, op.Entries...)
		}
	}
}

// List returns the live entries of a set.
func (f *Fake) List(name string) ([]Entry, error) {
	_, entries, err := Read(f, name)
	return entries, err
}

func (s *fakeSet) live(now time.Time) []Entry {
	var out []Entry
	for e, v := range s.entries {
		if !v.until.IsZero() {
			if e.Timeout = v.until.Sub(now); e.Timeout <= 0 {
				continue
			}
		}
		e.Comment = v.comment
		out = append(out, e)
	}
	return out
}

// Each implements Interface; sets with entries come in two parts.
func (f *Fake) Each(name string, each func(s Set, entries []Entry)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if name != "" && f.sets[name] == nil {
		return refused("list", name, errNotFound)
	}
	for _, n := range slices.Sorted(maps.Keys(f.sets)) {
		if name != "" && n != name {
			continue
		}
		head, live := f.sets[n].Set, f.sets[n].live(f.now())
		head.HashSize, head.MaxElem = 0, 0
		half := len(live) / 2
		for _, part := range [][]Entry{live[:half], live[half:]} {
			if len(part) > 0 || half == 0 {
				each(head, part)
			}
		}
	}
	return nil
}

// Sizes implements Interface.
func (f *Fake) Sizes(names ...string) (map[string]int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	sizes := map[string]int{}
	for name, s := range f.sets {
		if len(names) == 0 || slices.Contains(names, name) {
			sizes[name] = len(s.live(f.now()))
		}
	}
	return sizes, nil
}

// Dump returns all sets and live entries as text, one line each, sorted, without
// timeouts: the form that tests compare.
func (f *Fake) Dump() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var lines []string
	for name, s := range f.sets {
		fam := "inet"
		if s.IPv6 {
			fam = "inet6"
		}
		lines = append(lines, fmt.Sprintf("create %s %s %s", name, s.Type, fam))
		for _, e := range s.live(f.now()) {
			lines = append(lines, strings.TrimRight(fmt.Sprintf("%s %s", "add "+name, e.text()), " "))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (e Entry) text() string {
	switch {
	case e.Iface != "":
		return fmt.Sprintf("%s,%s", e.Addr, e.Iface)
	case e.Port != 0:
		return fmt.Sprintf("%s,%d:%d", e.Addr, e.Protocol, e.Port)
	}
	return e.Addr.String()
}
