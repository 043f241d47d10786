package nft

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

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
			element := &knftables.Element{Set: changes[i].set, Key: []string{e.Subject.String(), e.Addr.String()}}
			element.Comment = knftables.PtrTo(fmt.Sprint(f.now().Add(e.Timeout).UnixNano(), " ", e.Comment))
			tx.Add(element)
			if !changes[i].op.Remove {
				tx.Add(&knftables.Element{Set: changes[i].named(), Key: element.Key})
			}
			if changes[i].op.Remove {
				tx.Delete(element)
			}
		}
	}
	return f.inet.Run(context.Background(), tx)
}

// list implements entryStore.
func (f interfaceEntries) list(set string) (out []Entry, err error) {
	found, err := f.inet.ListElements(context.Background(), "set", set)
	if knftables.IsNotFound(err) {
		return nil, nil
	}
	for _, element := range found {
		if element.Comment == nil && isNamedSet(set) {
			element.Comment = knftables.PtrTo(fmt.Sprint(math.MaxInt64))
		}
		if element.Comment == nil || len(element.Key) != 2 {
			continue
		}
		until, comment, _ := strings.Cut(*element.Comment, " ")
		deadline, _ := strconv.ParseInt(until, 10, 64)
		left := time.Unix(0, deadline).Sub(f.now())
		if left <= 0 {
			continue
		}
		subject, err := netip.ParseAddr(element.Key[0])
		if err != nil {
			return nil, err
		}
		addr, err := netip.ParseAddr(element.Key[1])
		if err != nil {
			return nil, err
		}
		out = append(out, Entry{Subject: subject, Addr: addr, Timeout: left, Comment: comment})
	}
	return out, err
}

// forget implements entryStore.
func (f interfaceEntries) forget(keys []Entry, _ uint32) error {
	tx := f.inet.NewTransaction()
	for _, e := range keys {
		tx.Delete(&knftables.Element{Set: namedSet + suffix(e.Addr), Key: []string{e.Subject.String(), e.Addr.String()}})
	}
	return f.inet.Run(context.Background(), tx)
}
