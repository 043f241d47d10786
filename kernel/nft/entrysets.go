package nft

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

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

// setForm is what a set holds, in the kernel's and nft's numbers.
type setForm struct{ keyType, keyLen, flags uint32 }

// hasForm tells whether a set is of entries or of grants, with the family: the agent writes
// its elements by netlink.
func hasForm(name string) bool { return isEntrySet(name) || strings.HasPrefix(name, grantsPrefix) }

// formOf is the form of a set in the kernel. nft numbers types as enum datatypes of its
// datatype.h does, six bits for each word.
func formOf(set *knftables.Set) (f setForm) {
	for _, word := range typeWords(set.Type) {
		t := map[string]setForm{"ipv4_addr": {7, 4, 0}, "ipv6_addr": {8, 16, 0}, "inet_proto": {12, registerWord, 0}, "inet_service": {13, registerWord, 0}}[word]
		f.keyType, f.keyLen = f.keyType<<6|t.keyType, f.keyLen+t.keyLen
	}
	for _, flag := range set.Flags {
		f.flags |= map[knftables.SetFlag]uint32{knftables.TimeoutFlag: unix.NFT_SET_TIMEOUT, knftables.DynamicFlag: unix.NFT_SET_EVAL}[flag]
	}
	return f
}

// entryTexts renders a rule about what was dialled. A packet that matches renews the entry.
func entryTexts(set EntrySet, ports []PortRange, verdict string) (out []string) {
	const entry = "%[2]s saddr . ct original %[2]s daddr"
	at := "@" + entriesPrefix + set.Name + "-%[1]s "
	for _, p := range portLists(ports) {
		match := p.pinned() + entry + " " + at
		if p.ports != "" {
			match += "ct original proto-dst { " + p.ports + " } "
		}
		if set.Renew > 0 {
			match += fmt.Sprintf("update %s{ %s timeout %ds } ", at, entry, int(set.Renew.Seconds()))
		}
		out = append(out, each(match+verdict)...)
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
const listingReadings = 8

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
			if len(part) > 0 {
				each(name, part)
			}
		}
	}
	return nil
}

// listEntries lists one set. A listing during which nftables changed may lack entries, if
// the change was of this set: two in a row that are equal are complete.
func (t *Tables) listEntries(set string) (part []Entry, err error) {
	still := t.generations.exclude
	var last map[string]bool
	for n := range listingReadings {
		if n == listingReadings/2 {
			still = t.generations.quiet
		}
		same := true
		err = still(func() error {
			before, err := t.generations.now()
			if err != nil {
				return err
			}
			if part, err = t.entries.list(set); err != nil {
				return err
			}
			after, err := t.generations.now()
			same = before == after
			return err
		})
		if same || err != nil {
			return part, err
		}
		keys := map[string]bool{}
		for i := range part {
			keys[string(part[i].appendKey(nil))] = true
		}
		if n > 0 && maps.Equal(keys, last) {
			return part, nil
		}
		last = keys
	}
	return nil, errChanging
}

var errChanging = errors.New("nftables changed during each listing; another program changes it all the time")

// carry adds the entries of wanted sets to a transaction that makes the inet table anew, so
// that none is missing for a moment. The program nft does not take every comment: after the
// transaction the ops write them.
func (t *Tables) carry(ctx context.Context, tx *knftables.Transaction) (after []EntryOp, err error) {
	is, err := t.reader.objects(ctx, knftables.InetFamily, TableName)
	if err != nil {
		return nil, fmt.Errorf("read nft table %s: %w", TableName, err)
	}
	for _, s := range t.tiers.entries {
		op := EntryOp{Set: s.Name}
		for _, f := range families {
			if err := t.carrySet(tx, is, s.of(f), &op); err != nil {
				return nil, err
			}
		}
		after = append(after, op)
	}
	for _, s := range t.tiers.grants {
		op := EntryOp{Set: s.Name, Grants: true}
		for _, f := range families {
			if err := t.carrySet(tx, is, s.of(f), &op); err != nil {
				return nil, err
			}
		}
		after = append(after, op)
	}
	return after, nil
}

// carrySet is carry for one set, unless another one has its name.
func (t *Tables) carrySet(tx *knftables.Transaction, is *contents, set *knftables.Set, op *EntryOp) error {
	if is.elements[set.Name] == nil || is.forms != nil && is.forms[set.Name] != formOf(set) {
		return nil
	}
	all, err := t.entries.list(set.Name)
	if err != nil {
		return fmt.Errorf("list nft set %s %s: %w", TableName, set.Name, err)
	}
	for _, e := range all {
		words := e.words()
		if !op.Grants {
			tx.Add(&knftables.Element{Set: namedSet + suffix(e.Addr), Key: words})
		}
		if t.list != nil {
			last := slices.Clone(words)
			last[len(last)-1] += fmt.Sprintf(" timeout %[1]dms expires %[1]dms", e.Timeout.Milliseconds())
			tx.Add(&knftables.Element{Set: set.Name, Key: last})
		}
		if t.list == nil || e.Comment != "" {
			op.Entries = append(op.Entries, e)
		}
	}
	return nil
}

// AddEntrySets makes entry sets ahead of a state that has them. The next state that does not
// removes them.
func (t *Tables) AddEntrySets(ctx context.Context, sets []EntrySet) error {
	return t.addSets(ctx, tierObjects{entries: sets})
}

// addSets makes sets of entries and grants ahead of a state that has them.
func (t *Tables) addSets(ctx context.Context, sets tierObjects) error {
	missing := sets.without(t.tiers)
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
