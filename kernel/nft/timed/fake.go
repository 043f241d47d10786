package timed

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/knftables"
)

// fakeBackend are entries in knftables' fakes, whose elements have no timeouts: the
// deadline stands in the comment.
type fakeBackend struct {
	table knftables.Interface
	now   func() time.Time
}

// FakeClock sets the clock by which entries in fakes end, in place of the machine's.
func (s *Store) FakeClock(now func() time.Time) { s.backend = fakeBackend{s.o.Table, now} }

// write implements backend.
func (f fakeBackend) write(changes []change) error {
	tx := f.table.NewTransaction()
	for i := range changes {
		for _, e := range changes[i].entries {
			element := &knftables.Element{Set: changes[i].set, Key: e.Words()}
			uses := uint64(0)
			if changes[i].count {
				uses = f.uses(element)
				if changes[i].held != SameComment {
					uses = max(uses, e.Uses)
				}
			}
			element.Comment = knftables.PtrTo(fakeComment(f.now().Add(e.Timeout).UnixNano(), uses, e.Comment))
			tx.Add(element)
			if !changes[i].op.Remove && !changes[i].op.Grants {
				tx.Add(&knftables.Element{Set: changes[i].keySet(), Key: element.Key})
			}
			if changes[i].op.Remove {
				tx.Delete(element)
			}
		}
	}
	return f.table.Run(context.Background(), tx)
}

// keepUses implements backend: write does it.
func (fakeBackend) keepUses(string, []Entry) {}

// notesUses implements backend.
func (fakeBackend) notesUses() bool { return true }

// list implements backend.
func (f fakeBackend) list(set string) (out []Entry, whole bool, err error) {
	found, err := f.table.ListElements(context.Background(), "set", set)
	if knftables.IsNotFound(err) {
		return nil, true, nil
	}
	for _, element := range found {
		if element.Comment == nil && strings.TrimRight(set, "46") == KeySet {
			element.Comment = knftables.PtrTo(fmt.Sprint(math.MaxInt64))
		}
		if element.Comment == nil {
			continue
		}
		deadline, uses, comment := readFakeComment(*element.Comment)
		left := time.Unix(0, deadline).Sub(f.now())
		if left <= 0 {
			continue
		}
		e := Entry{Timeout: left, Comment: comment, Uses: uses}
		if err := e.parse(element.Key); err != nil {
			return nil, true, err
		}
		out = append(out, e)
	}
	return out, true, err
}

// fakeComment is the comment of an element of a fake.
func fakeComment(deadline int64, uses uint64, comment string) string {
	return fmt.Sprintf("%d+%d %s", deadline, uses, comment)
}

func readFakeComment(s string) (deadline int64, uses uint64, comment string) {
	s, comment, _ = strings.Cut(s, " ")
	until, count, _ := strings.Cut(s, "+")
	deadline, _ = strconv.ParseInt(until, 10, 64)
	uses, _ = strconv.ParseUint(count, 10, 64)
	return deadline, uses, comment
}

// uses is the count of an element that is there, 0 if it is not.
func (f fakeBackend) uses(e *knftables.Element) (uses uint64) {
	found, _ := f.table.ListElements(context.Background(), "set", e.Set) // a set that is missing has none
	for _, is := range found {
		if slices.Equal(is.Key, e.Key) && is.Comment != nil {
			_, uses, _ = readFakeComment(*is.Comment)
		}
	}
	return uses
}

// FakeMatch counts, in fakes, a packet that matched an entry of a set, of grants or of a rule.
func (s *Store) FakeMatch(set string, grants bool, e Entry) error {
	name := (&Op{Set: set, Grants: grants}).setName(Suffix(e.Addr))
	found, err := s.o.Table.ListElements(context.Background(), "set", name)
	if err != nil {
		return err
	}
	tx := s.o.Table.NewTransaction()
	for _, element := range found {
		if slices.Equal(element.Key, e.Words()) {
			deadline, uses, comment := readFakeComment(*element.Comment)
			tx.Delete(element)
			tx.Add(&knftables.Element{Set: name, Key: element.Key, Comment: knftables.PtrTo(fakeComment(deadline, uses+1, comment))})
		}
	}
	return s.o.Table.Run(context.Background(), tx)
}

// writeKeys implements backend.
func (f fakeBackend) writeKeys(keys []Entry, remove bool) error {
	tx := f.table.NewTransaction()
	for i := range keys {
		e := &knftables.Element{Set: KeySet + Suffix(keys[i].Addr), Key: keys[i].Words()}
		if tx.Add(e); remove {
			tx.Delete(e)
		}
	}
	return f.table.Run(context.Background(), tx)
}
