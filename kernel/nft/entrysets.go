package nft

import (
	"context"
	"errors"
	"fmt"
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
func (l layout) entrySet(name, addr string) {
	l.tx.Add(&knftables.Set{Name: name, Type: addr + " . " + addr, Flags: []knftables.SetFlag{knftables.DynamicFlag, knftables.TimeoutFlag}})
}

// setForm is what a set holds, in the kernel's and nft's numbers.
type setForm struct{ keyType, keyLen, flags uint32 }

// entryForms are the forms of entry sets, by family. nft numbers ipv4_addr 7 and ipv6_addr
// 8 (enum datatypes of nft's datatype.h), six bits for each word.
var entryForms = map[string]setForm{
	"4": {7<<6 | 7, 2 * 4, entryFlags},
	"6": {8<<6 | 8, 2 * 16, entryFlags},
}

const entryFlags = unix.NFT_SET_TIMEOUT | unix.NFT_SET_EVAL

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
// wait for the last one.
const listingReadings = 4

// ListEntries hands over the entries of entry sets, with the time that is left. A part
// holds all entries of one family. A set that is missing has no part.
func (t *Tables) ListEntries(names []string, each func(set string, part []Entry)) error {
	for _, name := range names {
		for _, f := range families {
			set := entriesPrefix + name + "-" + f.suffix
			part, err := t.listEntries(set)
			if err != nil {
				return fmt.Errorf("list nft set %s %s: %w", TableName, set, err)
			}
			if len(part) > 0 {
				each(name, part)
			}
		}
	}
	return nil
}

// listEntries lists one set. A listing during which nftables changed may lack entries.
func (t *Tables) listEntries(set string) (part []Entry, err error) {
	still := t.generations.exclude
	for n := range listingReadings {
		if n == listingReadings-1 {
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
	}
	return nil, errChanging
}

var errChanging = errors.New("nftables changed during each listing; another program changes it all the time")

// carry adds the entries of wanted sets to a transaction that makes the inet table anew, so
// that none is missing for a moment. The program nft does not take every comment: after the
// transaction the ops write them.
func (t *Tables) carry(ctx context.Context, tx *knftables.Transaction) (after []EntryOp, err error) {
	is, err := t.reader.objects(ctx, knftables.InetFamily)
	if err != nil {
		return nil, fmt.Errorf("read nft table %s: %w", TableName, err)
	}
	for _, s := range t.tiers.entries {
		op := EntryOp{Set: s.Name}
		for _, f := range families {
			set := entriesPrefix + s.Name + "-" + f.suffix
			if is.elements[set] == nil || is.forms != nil && is.forms[set] != entryForms[f.suffix] {
				continue
			}
			all, err := t.entries.list(set)
			if err != nil {
				return nil, fmt.Errorf("list nft set %s %s: %w", TableName, set, err)
			}
			for _, e := range all {
				tx.Add(&knftables.Element{Set: namedSet + f.suffix, Key: []string{e.Subject.String(), e.Addr.String()}})
				if t.list != nil {
					left := fmt.Sprintf("%[1]s timeout %[2]dms expires %[2]dms", e.Addr, e.Timeout.Milliseconds())
					tx.Add(&knftables.Element{Set: set, Key: []string{e.Subject.String(), left}})
				}
				if t.list == nil || e.Comment != "" {
					op.Entries = append(op.Entries, e)
				}
			}
		}
		after = append(after, op)
	}
	return after, nil
}

// AddEntrySets makes entry sets ahead of a state that has them. The next state that does not
// removes them.
func (t *Tables) AddEntrySets(ctx context.Context, sets []EntrySet) error {
	missing := tierObjects{entries: sets}.without(t.tiers)
	if len(missing.entries) == 0 {
		return nil
	}
	tx := t.inet.NewTransaction()
	missing.layOut(layout{tx})
	if err := t.run(ctx, t.inet, tx); err != nil {
		t.partial = true
		return fmt.Errorf("add entry sets to nft table %s %s: %w", knftables.InetFamily, TableName, err)
	}
	with := t.tiers
	with.entries = slices.Concat(with.entries, missing.entries)
	for _, s := range missing.entries {
		with.key += "+" + s.Name + " "
	}
	t.setTiers(with)
	return nil
}
