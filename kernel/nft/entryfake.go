package nft

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/namegate/namegate/kernel/nft/wire"
	"sigs.k8s.io/knftables"
)

// interfaceEntries are entries in knftables' fakes, whose elements have no timeouts: the
// deadline stands in the comment.
type interfaceEntries struct {
	inet knftables.Interface
	now  func() time.Time
}

// FakeClock sets the clock by which entries in fakes end, in place of the machine's.
func (t *Tables) FakeClock(now func() time.Time) { t.entries = interfaceEntries{t.inet, now} }

// write implements entryStore.
func (f interfaceEntries) write(changes []entryChange) error {
	tx := f.inet.NewTransaction()
	for i := range changes {
		for _, e := range changes[i].entries {
			element := &knftables.Element{Set: changes[i].set, Key: e.words()}
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
				tx.Add(&knftables.Element{Set: changes[i].named(), Key: element.Key})
			}
			if changes[i].op.Remove {
				tx.Delete(element)
			}
		}
	}
	return f.inet.Run(context.Background(), tx)
}

// keepUses implements entryStore: write does it.
func (interfaceEntries) keepUses(string, []Entry) {}

// list implements entryStore.
func (f interfaceEntries) list(set string) (out []Entry, whole bool, err error) {
	found, err := f.inet.ListElements(context.Background(), "set", set)
	if knftables.IsNotFound(err) {
		return nil, true, nil
	}
	for _, element := range found {
		if element.Comment == nil && isNamedSet(set) {
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
func (f interfaceEntries) uses(e *knftables.Element) (uses uint64) {
	found, _ := f.inet.ListElements(context.Background(), "set", e.Set) // a set that is missing has none
	for _, is := range found {
		if slices.Equal(is.Key, e.Key) && is.Comment != nil {
			_, uses, _ = readFakeComment(*is.Comment)
		}
	}
	return uses
}

// FakeMatch counts, in fakes, a packet that matched an entry of a set, of grants or of a rule.
func (t *Tables) FakeMatch(set string, grants bool, e Entry) error {
	name := (&EntryOp{Set: set, Grants: grants}).setName(suffix(e.Addr))
	found, err := t.inet.ListElements(context.Background(), "set", name)
	if err != nil {
		return err
	}
	tx := t.inet.NewTransaction()
	for _, element := range found {
		if slices.Equal(element.Key, e.words()) {
			deadline, uses, comment := readFakeComment(*element.Comment)
			tx.Delete(element)
			tx.Add(&knftables.Element{Set: name, Key: element.Key, Comment: knftables.PtrTo(fakeComment(deadline, uses+1, comment))})
		}
	}
	return t.inet.Run(context.Background(), tx)
}

// forget implements entryStore.
func (f interfaceEntries) forget(keys []Entry, _ uint32) error {
	tx := f.inet.NewTransaction()
	for _, e := range keys {
		tx.Delete(&knftables.Element{Set: namedSet + suffix(e.Addr), Key: []string{e.Subject.String(), e.Addr.String()}})
	}
	return f.inet.Run(context.Background(), tx)
}

// words is the key of an entry in words of nft.
func (e *Entry) words() (out []string) {
	if e.Subject.IsValid() {
		out = append(out, e.Subject.String())
	}
	out = append(out, e.Addr.String())
	if e.Protocol != 0 {
		out = append(out, wire.ProtocolWord(e.Protocol), strconv.Itoa(int(e.Port)))
	}
	return out
}

// parse reads such words.
func (e *Entry) parse(words []string) (err error) {
	if len(words) == 3 {
		e.Protocol = wire.Protocols[words[1]]
		port, err := strconv.ParseUint(words[2], 10, 16)
		if err != nil {
			return err
		}
		e.Port, words = uint16(port), words[:1]
	}
	if len(words) == 2 {
		if e.Subject, err = netip.ParseAddr(words[0]); err != nil {
			return err
		}
	}
	e.Addr, err = netip.ParseAddr(words[len(words)-1])
	return err
}
