package nft

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/namegate/namegate/kernel/nft/wire"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"
)

// entriesPrefix begins the names of entry sets, which end with the family.
const entriesPrefix = "entries-"

// isEntrySet tells whether a set is one of entries, with the family.
func isEntrySet(name string) bool { return strings.HasPrefix(name, entriesPrefix) }

// entrySet adds an entry set. The kernel bounds a set that a rule with a renewal refers to
// to 65,535 elements. A size of our own would have the kernel allocate the buckets for all
// of them at once: 2 MiB a set instead of 0.5 KiB (tried on Linux 6.18).
func (s EntrySet) of(f family) *knftables.Set {
	return &knftables.Set{Name: entriesPrefix + s.Name + "-" + f.suffix, Type: f.addr + " . " + f.addr, Flags: []knftables.SetFlag{knftables.DynamicFlag, knftables.TimeoutFlag}}
}

// setForm is what a set or map holds, in the kernel's and nft's numbers.
type setForm struct{ keyType, keyLen, flags, valueType, valueLen uint32 }

// hasForm tells whether a set is of entries or of grants, with the family: the agent writes
// its elements by netlink.
func hasForm(name string) bool { return isEntrySet(name) || strings.HasPrefix(name, grantsPrefix) }

// formOf is the form of a set in the kernel.
func formOf(set *knftables.Set) (f setForm) {
	f.keyType, f.keyLen = wire.KeyForm(wire.Types(set.Type))
	for _, flag := range set.Flags {
		f.flags |= map[knftables.SetFlag]uint32{knftables.TimeoutFlag: unix.NFT_SET_TIMEOUT, knftables.DynamicFlag: unix.NFT_SET_EVAL}[flag]
	}
	return f
}

// A verdict in the kernel's numbers (NFT_DATA_VERDICT, struct nft_verdict).
const verdictType, verdictLen = 0xffffff00, 16

// mapFormOf is the form of a map in the kernel.
func mapFormOf(key, value string) setForm {
	f := setForm{flags: unix.NFT_SET_MAP, valueType: verdictType, valueLen: verdictLen}
	f.keyType, f.keyLen = wire.KeyForm(wire.Types(key))
	if value != "verdict" {
		f.valueType, f.valueLen = wire.KeyForm(wire.Types(value))
	}
	return f
}

// entryMatches renders a rule about what was dialled, without its verdict. A packet that matches
// renews the entry, or uses it: the set is asked last.
func entryMatches(set EntrySet, ports []PortRange, subject string) (out []string) {
	entry := subject + " . ct original %[2]s daddr"
	at := "@" + entriesPrefix + set.Name + "-%[1]s "
	for _, p := range portLists(ports) {
		match := p.dialled() + entry + " " + at
		if set.Renew > 0 {
			match += fmt.Sprintf("update %s{ %s timeout %ds } ", at, entry, int(set.Renew.Seconds()))
		}
		out = append(out, each(match)...)
	}
	return out
}

// untracked renders rules for packets that another program exempted from tracking: what they
// dialled is what they reach.
func untracked(rules []string) (out []string) {
	words := strings.NewReplacer("ct original proto-dst", "th dport", "ct original ", "")
	for _, r := range rules {
		out = append(out, words.Replace(r))
	}
	return out
}

// listingReadings bounds the listings of a set that changes interrupt. Those of this agent
// wait for the last ones.
const listingReadings = 12

// listingsInARow lack no entry of the one before where entries end meanwhile.
const listingsInARow = 3

// ListEntries hands over the entries of entry sets, with the time that is left. A part
// holds all entries of one family. A set that is missing has no part.
func (t *Tables) ListEntries(names []string, each func(set string, part []Entry)) error {
	return t.listSets(entriesPrefix, names, each)
}

// listSets lists sets whose names begin with a prefix and end with the family.
func (t *Tables) listSets(prefix string, names []string, each func(set string, part []Entry)) error {
	for _, name := range names {
		for _, f := range families {
			set := prefix + name + "-" + f.suffix
			part, err := t.listEntries(set)
			if err != nil {
				return fmt.Errorf("list nft set %s %s: %w", TableName, set, err)
			}
			if slices.ContainsFunc(part, func(e Entry) bool { return e.catchAll }) {
				t.caught.Store(set, true)
			}
			t.noted(set, part)
			if len(part) > 0 {
				each(name, part)
			}
		}
	}
	return nil
}

// listEntries lists one set.
func (t *Tables) listEntries(set string) ([]Entry, error) {
	return t.listStill(set, func(n int, list func() error) error {
		if n < listingReadings/2 {
			return t.generations.Exclude(list)
		}
		return t.generations.Quiet(list)
	})
}

// listStill lists one set, the n-th time by still. A listing is complete that is whole, with no
// change of nftables meanwhile. Any other may lack entries: it is complete if it lacks none of
// the listing before. Where entries ended meanwhile, several listings in a row have to lack
// none, and so where some are there twice: entries that came meanwhile are before them, or the
// kernel resized the set. Without a change of nftables it resized the set, and they are no proof.
func (t *Tables) listStill(set string, still func(n int, list func() error) error) (part []Entry, err error) {
	var began time.Time // the listing before
	for n, complete := 0, 0; n < listingReadings; n++ {
		whole, changed, last, next := false, false, part, time.Time{}
		err = still(n, func() error {
			before, err := t.generations.Now()
			if err != nil {
				return err
			}
			next = time.Now()
			if part, whole, err = t.entries.list(set); err != nil {
				return err
			}
			after, err := t.generations.Now()
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

// entryKey is all that tells an entry of a set from the others.
type entryKey struct {
	subject, addr netip.Addr
	protocol      uint8
	port          uint16
	catchAll      bool
}

func (e *Entry) key() entryKey { return entryKey{e.Subject, e.Addr, e.Protocol, e.Port, e.catchAll} }

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

// AddEntrySets makes entry sets ahead of a state that has them. The next state that does not
// removes them.
func (t *Tables) AddEntrySets(ctx context.Context, sets []EntrySet) error {
	return t.addSets(ctx, tierObjects{entries: sets})
}

// addSets makes sets of entries and grants ahead of a state that has them.
func (t *Tables) addSets(ctx context.Context, sets tierObjects) error {
	missing := sets.without(t.tiers, false)
	if len(missing.entries)+len(missing.grants) == 0 {
		return nil
	}
	if err := t.write(ctx, slices.Index(tableFamilies, knftables.InetFamily), change{added: missing}); err != nil {
		t.partial = true
		return fmt.Errorf("add sets to nft table %s %s: %w", knftables.InetFamily, TableName, err)
	}
	t.written = nil
	with := t.tiers
	with.entries, with.grants = slices.Concat(with.entries, missing.entries), slices.Concat(with.grants, missing.grants)
	for _, s := range missing.entries {
		with.key += "+" + s.Name + " "
	}
	for _, s := range missing.grants {
		with.key += "+" + grantsPrefix + s.Name + " "
	}
	t.setTiers(with)
	return nil
}
