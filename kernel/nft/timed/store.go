package timed

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/namegate/namegate/kernel/nft/generation"
)

// Op adds or removes entries of one set, of both families.
type Op struct {
	Set    string // the name behind EntriesPrefix, without the family
	Grants bool   // the name is behind GrantsPrefix
	Remove bool   // entries that are missing are no error
	Count  bool   // Entry.Uses is to be known
	// Entries of more than entriesPerMessage are not one transaction.
	Entries []Entry
	Err     error // set by ApplyEntries
}

// entriesPerMessage bounds a part of an op: 64 entries with long comments are 21 KiB, and
// an attribute's 16-bit length can say 64 KiB.
const entriesPerMessage = 64

var (
	errNoSet     = errors.New("the set is missing")
	errNoEntry   = errors.New("subject and address are not of one family")
	errNoGrant   = errors.New("a grant has an address alone")
	errCommented = fmt.Errorf("a comment is longer than %d bytes", MaxComment)
)

// IsNoSet tells whether an op failed because its set is missing.
func IsNoSet(err error) bool { return errors.Is(err, errNoSet) }

// backend is where entries are: the kernel, or knftables' fakes.
type backend interface {
	// write makes changes in one transaction. If single changes are refused, none is made,
	// and each of their errors is set.
	write(changes []change) error
	// keepUses has entries of a set count from the number that the set has for them, where that
	// is higher. What cannot be read stays.
	keepUses(set string, entries []Entry)
	// list hands over the entries of a set with its family. A missing set has none. It tells
	// whether none is skipped and none is there twice, unless nftables changed meanwhile.
	list(set string) (part []Entry, whole bool, err error)
	// notesUses tells whether packets that match an entry can be counted.
	notesUses() bool
	// writeKeys adds keys to the named sets, or removes them.
	writeKeys(keys []Entry, remove bool) error
}

// change is a part of an op: entries of one family.
type change struct {
	op      *Op
	set     string // with the family
	held    Held
	count   bool // the kernel is to count the packets that match
	entries []Entry
	err     error
}

// Store is the entries of the sets of one table. Make it with New.
type Store struct {
	o       Options
	backend backend
	// notesUses: the kernel notes whether a packet matches an entry.
	notesUses atomic.Bool
	// caught has the names of sets in which a listing found a catch-all element.
	caught sync.Map
	keys   keys
}

// Options are the parameters of a Store.
type Options struct {
	// Table is the table, of the family inet and with the name Name. The sets may come later.
	Table knftables.Interface
	Name  string
	// Changes and Lister lead to the kernel in which the sets are, nil: they are in Table, which is a fake.
	Changes, Lister *nfattr.Socket
	Generations     *generation.Tracker // that counts all changes of ours
	// Moves: the kernel moves the deadline of an element that is there.
	Moves bool
}

// New returns the Store of a table.
func New(o Options) *Store {
	s := &Store{o: o, keys: keys{free: map[key]bool{}}}
	s.notesUses.Store(true)
	if o.Changes != nil {
		s.backend = kernelBackend{o.Changes, o.Lister, o.Name}
	} else {
		s.FakeClock(time.Now)
	}
	return s
}

// ProbeUses finds out whether the kernel notes which entries packets match. Without it the Store takes
// for granted that it does.
func (s *Store) ProbeUses() { s.notesUses.Store(s.backend.notesUses()) }

// setName is the name of the set with a family.
func (op *Op) setName(suffix string) string {
	if op.Grants {
		return GrantsPrefix + op.Set + "-" + suffix
	}
	return EntriesPrefix + op.Set + "-" + suffix
}

// keySet is the set, with the family, of the keys of all entries.
func (c *change) keySet() string { return KeySet + c.set[len(c.set)-1:] }

// deletes tells whether the change deletes elements.
func (c change) deletes() bool { return c.op.Remove || c.held == Unknown }

// ApplyEntries adds and removes entries, in order, in as few transactions as possible, and
// sets Err of each op. A refused op does not hold up the others. It hardly waits for other
// changes of this agent's. The first ops that delete nothing, with Absent or SameComment
// entries alone, are a transaction of their own: deletions take longer, and after them each
// program that closes a socket of netfilter waits.
func (s *Store) ApplyEntries(ops []Op) {
	var all []change
	for i := range ops {
		ops[i].Err = nil
		all = append(all, s.changes(&ops[i])...)
	}
	first := slices.IndexFunc(all, change.deletes)
	for _, part := range [][]change{all[:max(first, 0)], all[max(first, 0):]} {
		for len(part) > 0 {
			n := transaction(part)
			s.commit(part[:n])
			part = part[n:]
		}
	}
}

// changes divides an op by family, by what is held and by size.
func (s *Store) changes(op *Op) (out []change) {
	type kind struct {
		set  string
		held Held
	}
	last := map[kind]int{} // in out
	for _, e := range op.Entries {
		set := op.setName(Suffix(e.Addr))
		switch {
		case op.Grants && (!e.Addr.IsValid() || e.Subject.IsValid()):
			op.Err = cmp.Or(op.Err, s.refused(op, set, errNoGrant))
		case op.Grants:
		case !e.Addr.IsValid() || !e.Subject.IsValid() || e.Subject.Is6() != e.Addr.Is6():
			op.Err = cmp.Or(op.Err, s.refused(op, set, errNoEntry))
		}
		if len(e.Comment) > MaxComment {
			op.Err = cmp.Or(op.Err, s.refused(op, set, errCommented))
		}
		held := e.Held
		if op.Remove || held == SameComment && !s.o.Moves {
			held = Unknown
		}
		at, there := last[kind{set, held}]
		if !there || len(out[at].entries) == entriesPerMessage {
			at = len(out)
			last[kind{set, held}] = at
			out = append(out, change{op: op, set: set, held: held, count: op.Count && s.notesUses.Load()})
		}
		out[at].entries = append(out[at].entries, e)
		if op.Remove && e.Addr.IsUnspecified() {
			if _, there := s.caught.LoadAndDelete(set); there {
				e.catchAll = true
				out = append(out, change{op: op, set: set, held: held, entries: []Entry{e}})
			}
		}
	}
	return out
}

// commit makes changes, in one transaction if none is refused.
func (s *Store) commit(changes []change) {
	for {
		changes = slices.DeleteFunc(changes, func(c change) bool { return c.op.Err != nil })
		if len(changes) == 0 {
			return
		}
		var err error
		_ = s.o.Generations.Urgent(func() error {
			for i := range changes {
				if c := &changes[i]; c.count && c.held == Unknown && !c.op.Remove {
					s.backend.keepUses(c.set, c.entries)
				}
			}
			err = s.backend.write(changes)
			return nil // a refused transaction has no number
		})
		if err == nil {
			for i := range changes {
				s.keys.wrote(&changes[i])
			}
			return
		}
		if !slices.ContainsFunc(changes, func(c change) bool { return c.err != nil }) {
			// None of them is to blame by itself.
			if len(changes) == 1 {
				changes[0].op.Err = s.refused(changes[0].op, changes[0].set, err)
				return
			}
			for i := range changes {
				s.commit(changes[i : i+1])
			}
			return
		}
		for i := range changes { // those that were refused with another one are tried again
			c := &changes[i]
			switch err := c.err; {
			case err == nil:
			case errors.Is(err, syscall.EEXIST) && c.held == Absent:
				c.held = Unknown
			default:
				c.op.Err = s.refused(c.op, c.set, err)
			}
			c.err = nil
		}
	}
}

// refused names the set in an error.
func (s *Store) refused(op *Op, set string, err error) error {
	if errors.Is(err, syscall.ENOENT) || knftables.IsNotFound(err) {
		err = errNoSet
	}
	verb := "add entries to"
	if op.Remove {
		verb = "remove entries from"
	}
	return fmt.Errorf("%s nft set %s %s: %w", verb, s.o.Name, set, err)
}
