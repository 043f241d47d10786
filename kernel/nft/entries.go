package nft

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"
)

// EntrySet is a set of entries, "subject . dialled address", that rules by name ask. It is
// made for both families. Its elements are no part of a state: ApplyEntries writes them,
// and they end by their own timeouts.
type EntrySet struct {
	Name string
	// Renew, if it is not 0, is how long an entry lives after a packet that a rule matched
	// by it. It may shorten the life of an entry with a longer timeout.
	Renew time.Duration
}

// Entry is one element of an EntrySet.
type Entry struct {
	Subject, Addr netip.Addr // of one family
	// Timeout is how long the entry lives, in a listing how long it is going to.
	Timeout time.Duration
	// Comment is up to MaxEntryComment bytes. An entry that a packet renewed just as it
	// ended has none.
	Comment string
	Held    Held // not in a listing
}

// Held tells whether a set holds an entry before an op adds it.
type Held uint8

// The knowledge about an entry. A wrong Absent is noticed and costs time, a wrong
// SameComment leaves the old comment.
const (
	Unknown     Held = iota // what is there is replaced
	Absent                  // the entry is new
	SameComment             // only the timeout changes
)

// EntryOp adds or removes entries of one set, of both families.
type EntryOp struct {
	Set    string // the name of an EntrySet
	Remove bool   // entries that are missing are no error
	// Entries of more than entriesPerMessage are not one transaction.
	Entries []Entry
	Err     error // set by ApplyEntries
}

// MaxEntryComment bounds comments. The kernel keeps 256 bytes of user data of an element,
// three of which are the comment's type, length and end. The program nft takes 128 bytes at
// most, and prints all.
const MaxEntryComment = 250

// entriesPrefix begins the names of entry sets, which end with the family.
const entriesPrefix = "entries-"

// entriesPerMessage bounds a part of an op: 64 entries with long comments are 21 KiB, and
// an attribute's 16-bit length can say 64 KiB.
const entriesPerMessage = 64

var (
	errNoSet     = errors.New("the set is missing")
	errFull      = errors.New("the set is full")
	errNoEntry   = errors.New("subject and address are not of one family")
	errCommented = fmt.Errorf("a comment is longer than %d bytes", MaxEntryComment)
)

// IsNoSet tells whether an op failed because its set is missing.
func IsNoSet(err error) bool { return errors.Is(err, errNoSet) }

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

// entryStore is where entries are: the kernel, or knftables' fakes.
type entryStore interface {
	// write makes changes in one transaction. If single changes are refused, none is made,
	// and each of their errors is set.
	write(changes []entryChange) error
	// list hands over the entries of a set with its family. A missing set has none.
	list(set string) ([]Entry, error)
}

// entryChange is a part of an op: entries of one family.
type entryChange struct {
	op      *EntryOp
	set     string // with the family
	held    Held
	entries []Entry
	err     error
}

// named is the set, with the family, of the keys of all entries.
func (c *entryChange) named() string { return namedSet + c.set[len(c.set)-1:] }

// deletes tells whether the change deletes elements.
func (c *entryChange) deletes() bool { return c.op.Remove || c.held == Unknown }

// ApplyEntries adds and removes entries, in order, in as few transactions as possible, and
// sets Err of each op. A refused op does not hold up the others. It hardly waits for other
// changes of this agent's.
func (t *Tables) ApplyEntries(ops []EntryOp) {
	var all []entryChange
	for i := range ops {
		ops[i].Err = nil
		all = append(all, t.changes(&ops[i])...)
	}
	for len(all) > 0 {
		n := transaction(all)
		t.commit(all[:n])
		all = all[n:]
	}
}

// changes divides an op by family, by what is held and by size.
func (t *Tables) changes(op *EntryOp) (out []entryChange) {
	for _, e := range op.Entries {
		set := entriesPrefix + op.Set + "-" + suffix(e.Addr)
		switch {
		case !e.Addr.IsValid() || !e.Subject.IsValid() || e.Subject.Is6() != e.Addr.Is6():
			op.Err = cmp.Or(op.Err, refusedEntries(op, set, errNoEntry))
		case len(e.Comment) > MaxEntryComment:
			op.Err = cmp.Or(op.Err, refusedEntries(op, set, errCommented))
		}
		held := e.Held
		if op.Remove || held == SameComment && (!t.moves.Load() || t.replaces.Load()) {
			held = Unknown
		}
		at := slices.IndexFunc(out, func(c entryChange) bool {
			return c.set == set && c.held == held && len(c.entries) < entriesPerMessage
		})
		if at < 0 {
			at = len(out)
			out = append(out, entryChange{op: op, set: set, held: held})
		}
		out[at].entries = append(out[at].entries, e)
	}
	return out
}

// commit makes changes, in one transaction if none is refused.
func (t *Tables) commit(changes []entryChange) {
	for {
		changes = slices.DeleteFunc(changes, func(c entryChange) bool { return c.op.Err != nil })
		if len(changes) == 0 {
			return
		}
		err := t.generations.urgent(func() error { return t.entries.write(changes) })
		if err == nil {
			return
		}
		if !slices.ContainsFunc(changes, func(c entryChange) bool { return c.err != nil }) {
			// None of them is to blame by itself.
			if len(changes) == 1 {
				changes[0].op.Err = refusedEntries(changes[0].op, changes[0].set, err)
				return
			}
			for i := range changes {
				t.commit(changes[i : i+1])
			}
			return
		}
		var next []entryChange
		for _, c := range changes {
			next = append(next, c.again()...)
		}
		changes = next
	}
}

// again returns what is to be tried after a change was refused, or was refused with another
// one, and sets Err of the op if that is nothing.
func (c entryChange) again() []entryChange {
	err := c.err
	c.err = nil
	switch {
	case err == nil:
	case errors.Is(err, syscall.EEXIST) && c.held == Absent:
		c.held = Unknown
	case errors.Is(err, syscall.ENFILE) && c.op.Remove && len(c.entries) == 1:
		return nil // a set that is full has no room to say that the entry is missing
	case errors.Is(err, syscall.ENFILE) && c.op.Remove:
		var out []entryChange
		for i := range c.entries {
			out = append(out, entryChange{op: c.op, set: c.set, held: c.held, entries: c.entries[i : i+1]})
		}
		return out
	default:
		c.op.Err = refusedEntries(c.op, c.set, err)
	}
	return []entryChange{c}
}

// refusedEntries names the set in an error.
func refusedEntries(op *EntryOp, set string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOENT) || knftables.IsNotFound(err):
		err = errNoSet
	case errors.Is(err, syscall.ENFILE):
		err = errFull
	}
	verb := "add entries to"
	if op.Remove {
		verb = "remove entries from"
	}
	return fmt.Errorf("%s nft set %s %s: %w", verb, TableName, set, err)
}

// listingReadings bounds the listings of a set that other programs' changes interrupt.
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
	for range listingReadings {
		same := true
		err = t.generations.exclude(func() error {
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

// isEntrySet tells whether a set is one of entries, with the family.
func isEntrySet(name string) bool { return strings.HasPrefix(name, entriesPrefix) }
