package nft

import (
	"context"
	"fmt"
	"math"
	"net/netip"
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
			element.Comment = knftables.PtrTo(fmt.Sprint(f.now().Add(e.Timeout).UnixNano(), " ", e.Comment))
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
		if element.Comment == nil {
			continue
		}
		until, comment, _ := strings.Cut(*element.Comment, " ")
		deadline, _ := strconv.ParseInt(until, 10, 64)
		left := time.Unix(0, deadline).Sub(f.now())
		if left <= 0 {
			continue
		}
		e := Entry{Timeout: left, Comment: comment}
		if err := e.parse(element.Key); err != nil {
			return nil, err
		}
		out = append(out, e)
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
