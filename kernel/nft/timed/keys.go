package timed

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"

	"sigs.k8s.io/knftables"
)

// A rule by name is asked where the named set has the packet's subject and dialled address
// alone. So each entry's key is written to it before the entry, in one transaction, and has
// no timeout there: several sets may have an entry with the key. A key goes when no entry set has
// had it for two checks.

// namedEvery is in how many calls of CheckKeys the keys are compared with the entries.
const namedEvery = 12

// mostKeys bounds the keys that come or go at once.
const mostKeys = 64 * entriesPerMessage

// keys is what was found about the sets of keys.
type keys struct {
	checks  int
	keys    map[string]int         // in the last check, by family
	stale   map[[2]netip.Addr]bool // of no entry in the last comparison
	written [2]atomic.Bool         // entries of IPv4 and IPv6, since it was made
}

// wrote notes that entries of a change have keys.
func (n *keys) wrote(c *change) {
	if !c.op.Remove && !c.op.Grants {
		n.written[slices.Index(Families[:], c.set[len(c.set)-1:])].Store(true)
	}
}

func keyOf(e *Entry) [2]netip.Addr { return [2]netip.Addr{e.Subject, e.Addr} }

// CompareKeys has the next CheckKeys compare: the table was written anew, or by another agent.
func (s *Store) CompareKeys() { s.keys.checks, s.keys.keys, s.keys.stale = 0, nil, nil }

// CheckKeys adds the keys that are missing in the sets of keys, and names these sets. It compares
// them with the entries of sets, which are names behind EntriesPrefix. Between comparisons it does
// so where a set of keys has lost some.
func (s *Store) CheckKeys(sets []string) (deviating []string, err error) {
	generation, err := s.o.Generations.Now()
	if err != nil {
		return nil, err
	}
	there, found, err := s.listKeys()
	if err != nil {
		return nil, err
	}
	n, lost := &s.keys, false
	for i, f := range Families {
		lost = lost || found[f] < n.keys[f] || found[f] == 0 && n.written[i].Load()
	}
	n.checks, n.keys = n.checks+1, found
	if len(there)+len(sets) == 0 || !lost && n.checks%namedEvery != 1 {
		return nil, nil
	}
	wanted := map[[2]netip.Addr]bool{}
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
	before := there
	if there, _, err = s.listKeys(); err != nil {
		return nil, err
	}
	var missing []Entry
	for k := range wanted {
		if !there[k] && !before[k] {
			missing = append(missing, Entry{Subject: k[0], Addr: k[1]})
			deviating = append(deviating, fmt.Sprintf("nft set %s %s %s", knftables.InetFamily, s.o.Name, KeySet+Suffix(k[1])))
		}
	}
	if len(missing) == 0 {
		maps.DeleteFunc(there, func(k [2]netip.Addr, _ bool) bool { return wanted[k] })
		return nil, s.forgetKeys(there, generation)
	}
	for part := range slices.Chunk(missing, mostKeys) {
		err = errors.Join(err, s.o.Generations.Own(func() error { return s.backend.writeKeys(part, false, 0) }))
	}
	slices.Sort(deviating)
	return slices.Compact(deviating), err
}

// listKeys lists the sets of keys, and returns how many keys each family has.
func (s *Store) listKeys() (there map[[2]netip.Addr]bool, found map[string]int, err error) {
	there, found = map[[2]netip.Addr]bool{}, map[string]int{}
	for _, f := range Families {
		all, _, err := s.backend.list(KeySet + f)
		if err != nil {
			return nil, nil, fmt.Errorf("list nft set %s %s%s: %w", s.o.Name, KeySet, f, err)
		}
		for i := range all {
			there[keyOf(&all[i])] = true
		}
		found[f] = len(all)
	}
	return there, found, nil
}

// forgetKeys removes keys without entries that had none in the last comparison either,
// unless nftables changed since a generation.
func (s *Store) forgetKeys(unused map[[2]netip.Addr]bool, generation uint32) error {
	var gone []Entry
	for k := range unused {
		if s.keys.stale[k] && len(gone) < mostKeys {
			// No subject has the unspecified address, as which a catch-all element is listed.
			gone = append(gone, Entry{Subject: k[0], Addr: k[1], catchAll: k[0].IsUnspecified()})
		}
	}
	s.keys.stale = unused
	if len(gone) == 0 {
		return nil
	}
	err := s.o.Generations.Own(func() error { return s.backend.writeKeys(gone, true, generation) })
	switch {
	case errors.Is(err, syscall.ERESTART), errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOENT):
		return nil // at the next comparison
	case err != nil:
		return fmt.Errorf("remove keys from nft set %s %s: %w", s.o.Name, KeySet, err)
	}
	s.keys.keys = nil // fewer, until the next check
	return nil
}
