package timed

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// listingReadings bounds the listings of a set that changes interrupt. Those of this agent
// wait for the last ones.
const listingReadings = 12

// listingsInARow lack no entry of the one before where entries end meanwhile.
const listingsInARow = 3

// ListEntries hands over the entries of entry sets, with the time that is left. A part
// holds all entries of one family. A set that is missing has no part.
func (s *Store) ListEntries(names []string, each func(set string, part []Entry)) error {
	return s.listSets(EntriesPrefix, names, each)
}

// ListGrants is ListEntries for sets of grants.
func (s *Store) ListGrants(names []string, each func(set string, part []Entry)) error {
	return s.listSets(GrantsPrefix, names, each)
}

// listSets lists sets whose names begin with a prefix and end with the family.
func (s *Store) listSets(prefix string, names []string, each func(set string, part []Entry)) error {
	for _, name := range names {
		for _, f := range Families {
			set := prefix + name + "-" + f
			part, err := s.list(set)
			if err != nil {
				return fmt.Errorf("list nft set %s %s: %w", s.o.Name, set, err)
			}
			if slices.ContainsFunc(part, func(e Entry) bool { return e.catchAll }) {
				s.caught.Store(set, true)
			}
			if len(part) > 0 {
				each(name, part)
			}
		}
	}
	return nil
}

// list lists one set. A listing is complete that is whole, with no
// change of nftables meanwhile. Any other may lack entries: it is complete if it lacks none of
// the listing before. Where entries ended meanwhile, several listings in a row have to lack
// none, and so where some are there twice: entries that came meanwhile are before them, or the
// kernel resized the set. Without a change of nftables it resized the set, and they are no proof.
func (s *Store) list(set string) (part []Entry, err error) {
	var began time.Time // the listing before
	for n, complete := 0, 0; n < listingReadings; n++ {
		whole, changed, last, next := false, false, part, time.Time{}
		still := s.o.Generations.Exclude
		if n >= listingReadings/2 {
			still = s.o.Generations.Quiet
		}
		err = still(func() error {
			before, err := s.o.Generations.Now()
			if err != nil {
				return err
			}
			next = time.Now()
			if part, whole, err = s.backend.list(set); err != nil {
				return err
			}
			after, err := s.o.Generations.Now()
			changed = before != after
			whole = whole && !changed
			return err
		})
		if whole || err != nil {
			return part, err
		}
		if n > 0 {
			lacks, twice, ended := lacking(part, last, time.Since(began))
			if complete++; lacks || twice && !changed {
				complete = 0
			}
			if complete > 0 && (!ended && !twice || complete == listingsInARow) {
				return once(part), nil
			}
		}
		began = next
	}
	return nil, errChanging
}

// keysOf are the keys of entries.
func keysOf(part []Entry) map[entryKey]bool {
	keys := make(map[entryKey]bool, len(part))
	for i := range part {
		keys[part[i].key()] = true
	}
	return keys
}

// distinct tells whether no entry is there twice.
func distinct(part []Entry) bool { return len(keysOf(part)) == len(part) }

// once returns entries without those that are there before.
func once(part []Entry) []Entry {
	there := make(map[entryKey]bool, len(part))
	return slices.DeleteFunc(part, func(e Entry) bool {
		twice := there[e.key()]
		there[e.key()] = true
		return twice
	})
}

// lacking tells whether a listing lacks entries of one that began that long ago and that have
// not ended, whether it has entries twice, and whether others have ended.
func lacking(part, last []Entry, ago time.Duration) (lacks, twice, ended bool) {
	there := keysOf(part)
	twice = len(there) < len(part)
	for i := range last {
		over := last[i].Timeout > 0 && last[i].Timeout <= ago+timeoutStep
		ended = ended || over
		lacks = lacks || !over && !there[last[i].key()]
	}
	return lacks, twice, ended
}

// timeoutStep is how exactly the kernel keeps the time that an entry has left.
const timeoutStep = 20 * time.Millisecond

var errChanging = errors.New("nftables changed during each listing; another program changes it all the time")
