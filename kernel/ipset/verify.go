package ipset

import (
	"cmp"
	"errors"
	"slices"
	"strings"
)

// Difference is how a set in the kernel differs from the wanted one.
type Difference struct {
	Gone    bool    // there is no such set
	Foreign bool    // it has another header, as after a swap
	Missing []Entry // as they are to be added
	Changed []Entry // with another comment, as they are to be
	Surplus []Entry
}

// Any tells whether the set differs.
func (d *Difference) Any() bool {
	return d.Gone || d.Foreign || len(d.Missing)+len(d.Changed)+len(d.Surplus) > 0
}

// And returns the part of the difference that o has too.
func (d Difference) And(o Difference) Difference {
	both := func(a, b []Entry) []Entry {
		in := map[Entry]bool{}
		for i := range b {
			in[b[i].Key()] = true
		}
		return slices.DeleteFunc(a, func(e Entry) bool { return !in[e.Key()] })
	}
	return Difference{d.Gone && o.Gone, d.Foreign && o.Foreign, both(d.Missing, o.Missing), both(d.Changed, o.Changed), both(d.Surplus, o.Surplus)}
}

// Compare compares the header of a set, its members and their comments with the wanted
// ones. A member that is not wanted is surplus if surplus says so.
func Compare(in Interface, header Set, want []Entry, surplus func(Entry) bool) (d Difference, err error) {
	is, have, err := Read(in, header.Name)
	if IsNotFound(err) {
		return Difference{Gone: true, Missing: want}, nil
	}
	if err != nil {
		return d, err
	}
	header.HashSize, header.MaxElem = 0, 0
	d.Foreign = is != header
	type member struct {
		comment string
		wanted  bool
	}
	there := make(map[Entry]member, len(have))
	for i := range have {
		there[have[i].Key()] = member{comment: have[i].Comment}
	}
	for i := range want {
		w := &want[i]
		key := w.Key()
		m, ok := there[key]
		if !ok {
			d.Missing = append(d.Missing, *w)
			continue
		}
		if m.comment != w.Comment {
			d.Changed = append(d.Changed, *w)
		}
		there[key] = member{m.comment, true}
	}
	for key, m := range there {
		if !m.wanted && surplus(key) {
			d.Surplus = append(d.Surplus, key)
		}
	}
	return d, nil
}

// Repair writes a difference. A set with another header cannot take the wanted members:
// it is replaced by a set with all of them, and rules still refer to its name.
func Repair(in Interface, header Set, d Difference, all []Entry) error {
	if d.Foreign {
		return Replace(in, header, all...)
	}
	if d.Gone {
		if err := in.Ensure(header); err != nil {
			return err
		}
	}
	ops := []Op{{Set: header.Name, Delete: true, Entries: d.Surplus}, {Set: header.Name, Entries: append(d.Missing, d.Changed...)}}
	in.Apply(ops)
	return cmp.Or(ops[0].Err, ops[1].Err)
}

// Read returns the header of a set, but for HashSize and MaxElem, and its entries.
func Read(in Interface, name string) (s Set, entries []Entry, err error) {
	err = in.Each(name, func(head Set, part []Entry) { s, entries = head, append(entries, part...) })
	return s, entries, err
}

// Replace makes a set have exactly the entries, whatever header or type the set of that name has. In
// place of a set that rules refer to, the new one is filled under a name of its own and swapped with it:
// until then the entries of the old set are in force. A set of another type that a rule refers to cannot
// be replaced: IsMismatch.
func Replace(in Interface, s Set, entries ...Entry) error {
	switch err := in.Destroy(s.Name); {
	case err == nil, IsNotFound(err):
		return fill(in, s, entries)
	case !IsBusy(err):
		return err
	}
	name := s.Name
	prefix, _, _ := strings.Cut(name, "-")
	s.Name = prefix + "-replacement"
	if err := in.Destroy(s.Name); err != nil && !IsNotFound(err) {
		return err
	}
	err := fill(in, s, entries)
	if err == nil {
		err = in.Swap(s.Name, name)
	}
	return errors.Join(err, in.Destroy(s.Name))
}

// fill makes a set with entries.
func fill(in Interface, s Set, entries []Entry) error {
	if err := in.Ensure(s); err != nil {
		return err
	}
	ops := []Op{{Set: s.Name, Entries: entries}}
	in.Apply(ops)
	return ops[0].Err
}
