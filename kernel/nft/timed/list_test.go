package timed

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/namegate/namegate/kernel/nft/generation"
)

// listings are an backend of which each listing is another one.
type listings struct {
	backend
	left    []listing
	changes uint32
}

type listing struct {
	entries string // one letter each, upper case for one that is about to end
	whole   bool
	changed bool // nftables, during the listing
}

func (l *listings) list(string) (out []Entry, whole bool, err error) {
	if len(l.left) == 0 {
		return nil, false, errors.New("one listing more than needed")
	}
	next := l.left[0]
	l.left = l.left[1:]
	if next.changed {
		l.changes++
	}
	for _, letter := range []byte(next.entries) {
		e := Entry{Addr: netip.AddrFrom4([4]byte{192, 0, 2, letter | 0x20}), Timeout: time.Hour}
		if letter < 'a' {
			e.Timeout = time.Nanosecond
		}
		out = append(out, e)
	}
	return out, next.whole, nil
}

// TestListingsThatAreNotWhole: a set is listed until a listing is whole, or agrees with the ones
// before.
func TestListingsThatAreNotWhole(t *testing.T) {
	for name, read := range map[string][]listing{
		"whole":                {{"abc", true, false}},
		"two that agree":       {{"abc", false, false}, {"abc", false, false}},
		"one skipped":          {{"abcd", false, false}, {"abc", false, false}, {"abcd", false, false}},
		"the first skipped":    {{"ab", false, false}, {"abc", false, false}},
		"one twice":            {{"ab", false, false}, {"abb", false, false}, {"abc", false, false}},
		"then whole":           {{"abcd", false, false}, {"abc", true, false}},
		"one ends":             {{"abZ", false, false}, {"ab", false, false}, {"ab", false, false}},
		"some end each time":   {{"abY", false, false}, {"abY", false, false}, {"abZ", false, false}, {"ab", false, false}},
		"twice, others commit": {{"ab", false, true}, {"abb", false, true}, {"abbc", false, true}, {"abcc", false, true}},
		"twice, and skips":     {{"abc", false, true}, {"abb", false, true}, {"abbc", false, true}, {"abcc", false, true}, {"abcc", false, true}},
		"twice, then once":     {{"ab", false, true}, {"abb", false, true}, {"abc", false, true}},
		"one ends, and skips":  {{"abcZ", false, false}, {"ab", false, false}, {"abc", false, false}},
	} {
		store := &listings{left: slices.Clone(read)}
		s := New(Options{Generations: generation.New(func() (uint32, error) { return store.changes, nil })})
		s.backend = store
		part, err := s.list("set")
		last := map[rune]bool{}
		for _, letter := range read[len(read)-1].entries {
			last[letter] = true
		}
		if err != nil || len(store.left) > 0 || len(part) != len(last) {
			t.Errorf("%s: %d entries, %v; want %d with %d listings more", name, len(part), err, len(last), len(store.left))
		}
	}
}
