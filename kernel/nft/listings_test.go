package nft

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/knftables"
)

// listings are an entryStore of which each listing is another one.
type listings struct {
	entryStore
	left []listing
}

type listing struct {
	entries string // one letter each, upper case for one that is about to end
	whole   bool
}

func (l *listings) list(string) (out []Entry, whole bool, err error) {
	if len(l.left) == 0 {
		return nil, false, errors.New("one listing more than needed")
	}
	next := l.left[0]
	l.left = l.left[1:]
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
		"whole":               {{"abc", true}},
		"two that agree":      {{"abc", false}, {"abc", false}},
		"one skipped":         {{"abcd", false}, {"abc", false}, {"abcd", false}},
		"the first skipped":   {{"ab", false}, {"abc", false}},
		"one twice":           {{"ab", false}, {"abb", false}, {"abc", false}},
		"then whole":          {{"abcd", false}, {"abc", true}},
		"one ends":            {{"abZ", false}, {"ab", false}, {"ab", false}},
		"some end each time":  {{"abY", false}, {"abY", false}, {"abZ", false}, {"ab", false}},
		"one ends, and skips": {{"abcZ", false}, {"ab", false}, {"abc", false}},
	} {
		store := &listings{left: slices.Clone(read)}
		tables := New(knftables.NewFake(knftables.InetFamily, TableName), knftables.NewFake(knftables.BridgeFamily, TableName), Bits{})
		tables.entries = store
		part, err := tables.listEntries("set")
		last := read[len(read)-1].entries
		if err != nil || len(store.left) > 0 || len(part) != len(last) {
			t.Errorf("%s: %d entries, %v; want %d with %d listings more", name, len(part), err, len(last), len(store.left))
		}
	}
}
