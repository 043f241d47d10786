package nft

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"sigs.k8s.io/knftables"
)

// A rule by name is asked where the named set has the packet's subject and dialled address
// alone. So each entry's key is written to it before the entry, in one transaction, and has
// no timeout there: packets renew entries. A key goes when no entry set has had it for two
// checks, which no packet that renews an entry of before lasts.

// namedEvery is in how many calls of Verify the keys are compared with the entries.
const namedEvery = 12

// mostForgotten bounds the keys that go at once.
const mostForgotten = 64 * entriesPerMessage

// named is what was found about the named sets.
type named struct {
	checks  int
	keys    map[string]int         // in the last check, by family
	stale   map[[2]netip.Addr]bool // of no entry in the last comparison
	written [2]atomic.Bool         // entries of IPv4 and IPv6, since it was made
}

// wrote notes that entries of a change have keys.
func (n *named) wrote(c *entryChange) {
	if !c.op.Remove && !c.op.Grants {
		n.written[slices.IndexFunc(families, func(f family) bool { return c.named() == namedSet+f.suffix })].Store(true)
	}
}

// forget has the next check compare.
func (n *named) forget() { n.checks, n.keys, n.stale = 0, nil, nil }

func keyOf(e *Entry) [2]netip.Addr { return [2]netip.Addr{e.Subject, e.Addr} }

// checkNamed adds the keys that are missing in the named sets, and names these sets. Between
// comparisons it does so where a set has lost keys.
func (t *Tables) checkNamed(ctx context.Context, entries []EntrySet) (deviating []string, err error) {
	keys := map[[2]netip.Addr]bool{}
	generation, err := t.generations.Now()
	if err != nil {
		return nil, err
	}
	n := &t.named
	lost, found := false, map[string]int{}
	for i, f := range families {
		all, _, err := t.entries.list(namedSet + f.suffix)
		if err != nil {
			return nil, fmt.Errorf("list nft set %s %s%s: %w", TableName, namedSet, f.suffix, err)
		}
		for i := range all {
			keys[keyOf(&all[i])] = true
		}
		found[f.suffix] = len(all)
		lost = lost || len(all) < n.keys[f.suffix] || len(all) == 0 && n.written[i].Load()
	}
	n.checks, n.keys = n.checks+1, found
	if len(keys)+len(entries) == 0 || !lost && n.checks%namedEvery != 1 {
		return nil, nil
	}
	unused := map[[2]netip.Addr]bool{}
	for k := range keys {
		unused[k] = true
	}
	missing := map[[2]netip.Addr]bool{}
	for _, s := range entries {
		for _, f := range families {
			all, err := t.listEntries(entriesPrefix + s.Name + "-" + f.suffix)
			if err != nil {
				return nil, fmt.Errorf("list nft set %s %s: %w", TableName, s.Name, err)
			}
			for i := range all {
				k := keyOf(&all[i])
				if delete(unused, k); !keys[k] {
					missing[k] = true
				}
			}
		}
	}
	if len(missing) > 0 {
		if deviating, err = t.addKeys(ctx, missing); len(deviating) > 0 || err != nil {
			return deviating, err
		}
	}
	return nil, t.forgetNamed(unused, generation)
}

// addKeys adds the keys of entries that the named sets lack, and names these sets. The keys of
// entries that came after the named sets were listed are in a listing now.
func (t *Tables) addKeys(ctx context.Context, missing map[[2]netip.Addr]bool) (deviating []string, err error) {
	tx := t.inet.NewTransaction()
	for _, f := range families {
		all, _, err := t.entries.list(namedSet + f.suffix)
		if err != nil {
			return nil, fmt.Errorf("list nft set %s %s%s: %w", TableName, namedSet, f.suffix, err)
		}
		for i := range all {
			delete(missing, keyOf(&all[i]))
		}
	}
	for k := range missing {
		set := namedSet + suffix(k[1])
		tx.Add(&knftables.Element{Set: set, Key: []string{k[0].String(), k[1].String()}})
		deviating = append(deviating, fmt.Sprintf("nft set %s %s %s", knftables.InetFamily, TableName, set))
	}
	if len(deviating) == 0 {
		return nil, nil
	}
	slices.Sort(deviating)
	return slices.Compact(deviating), t.run(ctx, t.inet, tx)
}

// forgetNamed removes keys without entries that had none in the last comparison either,
// unless nftables changed since a generation.
func (t *Tables) forgetNamed(unused map[[2]netip.Addr]bool, generation uint32) error {
	var gone []Entry
	for k := range unused {
		if t.named.stale[k] && len(gone) < mostForgotten {
			// No subject has the unspecified address, as which a catch-all element is listed.
			gone = append(gone, Entry{Subject: k[0], Addr: k[1], catchAll: k[0].IsUnspecified()})
		}
	}
	t.named.stale = unused
	if len(gone) == 0 {
		return nil
	}
	err := t.generations.Own(func() error { return t.entries.forget(gone, generation) })
	switch {
	case errors.Is(err, syscall.ERESTART), errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOENT):
		return nil // at the next comparison
	case err != nil:
		return fmt.Errorf("remove keys from nft set %s %s: %w", TableName, namedSet, err)
	}
	t.named.keys = nil // fewer, until the next check
	return nil
}

// isNamedSet tells whether a set is one of keys, with the family.
func isNamedSet(name string) bool { return strings.TrimRight(name, "46") == namedSet }
