package timed

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"sigs.k8s.io/knftables"
)

// A rule by name is asked where the named set has the packet's subject and dialled address
// alone. So each entry's key is written to it before the entry, in one transaction, and has
// no timeout there: several sets may have an entry with the key. RemoveKeys removes a key when no
// entry has it, of which one was removed or a comparison found none.

// namedEvery is in how many calls of CheckKeys the keys are compared with the entries.
const namedEvery = 12

// mostKeys bounds the keys that come or go at once, mostFree those that wait for RemoveKeys: the
// next comparison finds the others.
const (
	mostKeys = 16 * entriesPerMessage
	mostFree = 64 * mostKeys
)

// key is the subject and the address of entries.
type key = [2]netip.Addr

// keys is what is known of the sets of keys.
type keys struct {
	checks    int        // since the last CompareKeys
	comparing sync.Mutex // held while keys are compared, when none goes

	mu    sync.Mutex   // guards the fields from here on
	least [2]int       // how many keys there are at least, by family
	free  map[key]bool // for RemoveKeys: perhaps no entry has them
}

func keyOf(e *Entry) key { return key{e.Subject, e.Addr} }

// familyOf is the place of an address in Families.
func familyOf(a netip.Addr) int { return slices.Index(Families[:], Suffix(a)) }

// wrote notes the keys of a change.
func (n *keys) wrote(c *change) {
	if c.op.Grants {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range c.entries {
		e := &c.entries[i]
		if f := familyOf(e.Addr); !c.op.Remove {
			n.least[f] = max(n.least[f], 1)
		} else if len(n.free) < mostFree {
			n.free[keyOf(e)] = true
		}
	}
}

// lost notes how many keys a listing found, and tells whether they are fewer than there were.
func (n *keys) lost(found [2]int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	lost := found[0] < n.least[0] || found[1] < n.least[1]
	n.least = found
	return lost
}

// CompareKeys has the next CheckKeys compare: the table was written anew, or by another agent.
func (s *Store) CompareKeys() { s.keys.checks = 0 }

// CheckKeys adds the keys that are missing in the sets of keys, and names these sets. It compares
// them with the entries of sets, which are names behind EntriesPrefix. Between comparisons it does
// so where a set of keys has lost some.
func (s *Store) CheckKeys(sets []string) (deviating []string, err error) {
	n := &s.keys
	n.comparing.Lock()
	defer n.comparing.Unlock()
	before, found, err := s.listKeys()
	if err != nil {
		return nil, err
	}
	lost, due := n.lost(found), n.checks%namedEvery == 0
	if n.checks++; len(before)+len(sets) == 0 || !lost && !due {
		return nil, nil
	}
	wanted := map[key]bool{}
	for _, name := range sets {
		for _, f := range Families {
			all, err := s.list(EntriesPrefix + name + "-" + f)
			if err != nil {
				return nil, fmt.Errorf("list nft set %s %s: %w", s.o.Name, name, err)
			}
			for i := range all {
				wanted[keyOf(&all[i])] = true
			}
		}
	}
	// The key of an entry that came meanwhile is in a listing of now, and a listing may skip an element.
	there, _, err := s.listKeys()
	if err != nil {
		return nil, err
	}
	var missing []Entry
	for k := range wanted {
		if !there[k] && !before[k] {
			missing = append(missing, Entry{Subject: k[0], Addr: k[1]})
			deviating = append(deviating, fmt.Sprintf("nft set %s %s %s", knftables.InetFamily, s.o.Name, KeySet+Suffix(k[1])))
		}
	}
	for part := range slices.Chunk(missing, mostKeys) {
		err = errors.Join(err, s.o.Generations.Own(func() error { return s.backend.writeKeys(part, false) }))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for k := range there {
		if !wanted[k] {
			n.free[k] = true
		}
	}
	slices.Sort(deviating)
	return slices.Compact(deviating), err
}

// listKeys lists the sets of keys, and returns how many keys each family has.
func (s *Store) listKeys() (there map[key]bool, found [2]int, err error) {
	there = map[key]bool{}
	for f, family := range Families {
		all, _, err := s.backend.list(KeySet + family)
		if err != nil {
			return nil, found, fmt.Errorf("list nft set %s %s%s: %w", s.o.Name, KeySet, family, err)
		}
		for i := range all {
			there[keyOf(&all[i])] = true
		}
		found[f] = len(all)
	}
	return there, found, nil
}

// RemoveKeys removes keys that are free and not held, and tells whether there are more. Held are those
// of all entries: none is written meanwhile, and no other agent writes any. During a comparison no key goes.
func (s *Store) RemoveKeys(held func(subject, addr netip.Addr) bool) (more bool, err error) {
	n := &s.keys
	if !n.comparing.TryLock() {
		return false, nil
	}
	defer n.comparing.Unlock()
	var gone []Entry
	n.mu.Lock()
	for k := range n.free {
		if more = len(gone) == mostKeys; more {
			break
		}
		if delete(n.free, k); !held(k[0], k[1]) {
			// No subject has the unspecified address, as which a catch-all element is listed.
			gone = append(gone, Entry{Subject: k[0], Addr: k[1], catchAll: k[0].IsUnspecified()})
			n.least[familyOf(k[1])]--
		}
	}
	n.mu.Unlock()
	if len(gone) == 0 {
		return false, nil
	}
	if err := s.o.Generations.Urgent(func() error { return s.backend.writeKeys(gone, true) }); err != nil {
		return false, fmt.Errorf("remove keys from nft set %s %s: %w", s.o.Name, KeySet, err)
	}
	return more, nil
}
