package nft

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"

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
	Subject, Addr netip.Addr // of one family; in a GrantSet without Subject
	// Protocol and Port are of a GrantSet whose entries have ports.
	Protocol uint8
	Port     uint16
	// Timeout is how long the entry lives, in a listing how long it is going to.
	Timeout time.Duration
	// Comment is up to MaxEntryComment bytes. An entry that a packet renewed just as it
	// ended has none.
	Comment string
	Held    Held // not in a listing
	// Uses, in a listing of a set whose ops have Count, is the bytes of the packets that matched
	// the entry, from the number on with which it was written. An entry that is there keeps
	// its number, unless the new one is higher and the entry is replaced.
	Uses uint64
	// unnoted, in a listing: the kernel does not note whether a packet matches.
	unnoted bool
	// catchAll: it is the set's catch-all element, see wire.CatchAllFlag.
	catchAll bool
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
	Grants bool   // Set is the name of a GrantSet
	Remove bool   // entries that are missing are no error
	Count  bool   // Entry.Uses is to be known
	// Entries of more than entriesPerMessage are not one transaction.
	Entries []Entry
	Err     error // set by ApplyEntries
}

// MaxEntryComment bounds comments. The kernel keeps 256 bytes of user data of an element,
// three of which are the comment's type, length and end. The program nft takes 128 bytes at
// most, and prints all.
const MaxEntryComment = 250

// entriesPerMessage bounds a part of an op: 64 entries with long comments are 21 KiB, and
// an attribute's 16-bit length can say 64 KiB.
const entriesPerMessage = 64

var (
	errNoSet     = errors.New("the set is missing")
	errFull      = errors.New("the set is full")
	errNoEntry   = errors.New("subject and address are not of one family")
	errNoGrant   = errors.New("a grant has an address alone")
	errCommented = fmt.Errorf("a comment is longer than %d bytes", MaxEntryComment)
)

// IsNoSet tells whether an op failed because its set is missing.
func IsNoSet(err error) bool { return errors.Is(err, errNoSet) }

// entryStore is where entries are: the kernel, or knftables' fakes.
type entryStore interface {
	// write makes changes in one transaction. If single changes are refused, none is made,
	// and each of their errors is set.
	write(changes []entryChange) error
	// keepUses has entries of a set count from the number that the set has for them, where that
	// is higher. What cannot be read stays.
	keepUses(set string, entries []Entry)
	// list hands over the entries of a set with its family. A missing set has none. It tells
	// whether none is skipped and none is there twice, unless nftables changed meanwhile.
	list(set string) (part []Entry, whole bool, err error)
	// forget removes keys from the named sets, if the last change has that number.
	forget(keys []Entry, generation uint32) error
}

// entryChange is a part of an op: entries of one family.
type entryChange struct {
	op      *EntryOp
	set     string // with the family
	held    Held
	count   bool // the kernel is to count the packets that match
	entries []Entry
	err     error
}

// setName is the name of the set with a family.
func (op *EntryOp) setName(suffix string) string {
	if op.Grants {
		return grantsPrefix + op.Set + "-" + suffix
	}
	return entriesPrefix + op.Set + "-" + suffix
}

// named is the set, with the family, of the keys of all entries.
func (c *entryChange) named() string { return namedSet + c.set[len(c.set)-1:] }

// deletes tells whether the change deletes elements.
func (c entryChange) deletes() bool { return c.op.Remove || c.held == Unknown }

// ApplyEntries adds and removes entries, in order, in as few transactions as possible, and
// sets Err of each op. A refused op does not hold up the others. It hardly waits for other
// changes of this agent's. The first ops that delete nothing, with Absent or SameComment
// entries alone, are a transaction of their own: deletions take longer, and after them a
// close of a socket waits (see nfattr.CloseLater).
func (t *Tables) ApplyEntries(ops []EntryOp) {
	defer t.carrying.note(ops)()
	t.applyEntries(ops)
}

func (t *Tables) applyEntries(ops []EntryOp) {
	var all []entryChange
	for i := range ops {
		ops[i].Err = nil
		all = append(all, t.changes(&ops[i])...)
	}
	first := slices.IndexFunc(all, entryChange.deletes)
	for _, part := range [][]entryChange{all[:max(first, 0)], all[max(first, 0):]} {
		for len(part) > 0 {
			n := transaction(part)
			t.commit(part[:n])
			part = part[n:]
		}
	}
}

// changes divides an op by family, by what is held and by size.
func (t *Tables) changes(op *EntryOp) (out []entryChange) {
	type kind struct {
		set  string
		held Held
	}
	last := map[kind]int{} // in out
	for _, e := range op.Entries {
		set := op.setName(suffix(e.Addr))
		switch {
		case op.Grants && (!e.Addr.IsValid() || e.Subject.IsValid()):
			op.Err = cmp.Or(op.Err, refusedEntries(op, set, errNoGrant))
		case op.Grants:
		case !e.Addr.IsValid() || !e.Subject.IsValid() || e.Subject.Is6() != e.Addr.Is6():
			op.Err = cmp.Or(op.Err, refusedEntries(op, set, errNoEntry))
		}
		if len(e.Comment) > MaxEntryComment {
			op.Err = cmp.Or(op.Err, refusedEntries(op, set, errCommented))
		}
		held := e.Held
		if op.Remove || held == SameComment && (!t.moves.Load() || t.replaces.Load() || op.Count && t.lacksUses(set)) {
			held = Unknown
		}
		at, there := last[kind{set, held}]
		if !there || len(out[at].entries) == entriesPerMessage {
			at = len(out)
			last[kind{set, held}] = at
			out = append(out, entryChange{op: op, set: set, held: held, count: op.Count && t.notesUses.Load()})
		}
		out[at].entries = append(out[at].entries, e)
		if op.Remove && e.Addr.IsUnspecified() {
			if _, there := t.caught.LoadAndDelete(set); there {
				e.catchAll = true
				out = append(out, entryChange{op: op, set: set, held: held, entries: []Entry{e}})
			}
		}
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
		var err error
		_ = t.generations.Urgent(func() error {
			for i := range changes {
				if c := &changes[i]; c.count && c.held == Unknown && !c.op.Remove {
					t.entries.keepUses(c.set, c.entries)
				}
			}
			err = t.entries.write(changes)
			return nil // a refused transaction has no number
		})
		if err == nil {
			for i := range changes {
				t.named.wrote(&changes[i])
			}
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
			out = append(out, entryChange{op: c.op, set: c.set, held: c.held, count: c.count, entries: c.entries[i : i+1]})
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
