package nft

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/namegate/namegate/kernel/nft/wire"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"
)

// Renew has the element of a set of the first table be there for the set's timeout from now on. It hardly waits
// for other changes of this agent's, which may take seconds on a busy node.
func (t *Tables) Renew(ctx context.Context, s *Set) error {
	if err := t.generations.Urgent(func() error { return t.renew(ctx, s) }); err != nil {
		return fmt.Errorf("renew the element of nft set %s %s: %w", t.names[0], s.Name, err)
	}
	return nil
}

// renews tells whether an element is that of Renewed.
func (s *Set) renews(e *knftables.Element) bool {
	return s.Fill == Renewed && slices.Equal(e.Key, []string{s.Renewed})
}

// renewedOf returns the elements that Renew added to a table, as far as they are there.
func (t *Tables) renewedOf(ctx context.Context, w *Table) (out []*knftables.Element, err error) {
	for _, s := range w.Layout.Sets {
		if s.Fill != Renewed {
			continue
		}
		found, err := t.Elements(ctx, w.Layout.ID, s)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(found, s.renews) {
			out = append(out, s.element([]string{s.Renewed}))
		}
	}
	return out, nil
}

// Empty removes the elements of a set of the first table, whatever the layout is.
func (t *Tables) Empty(ctx context.Context, s *Set) error {
	err := t.runElements(ctx, t.names[0], nil, func(tx transaction) { tx.Flush(reference(s.Name, false)) })
	if err != nil {
		return fmt.Errorf("empty nft set %s %s: %w", t.names[0], s.Name, err)
	}
	return nil
}

// renewByInterface renews an element by knftables.
func (t *Tables) renewByInterface(ctx context.Context, s *Set) error {
	table := t.all[t.names[0]]
	tx := table.NewTransaction()
	// Adding an element that is there does not renew it; both in one transaction leave
	// no time without it.
	tx.Flush(reference(s.Name, false))
	tx.Add(s.element([]string{s.Renewed}))
	return table.Run(ctx, tx)
}

// renewals are the differences between the timeout of the set and those of the element in turn. Linux moves the deadline
// of an element that is there if it is added with another timeout (6.12 and later). They are multiples of
// a jiffy at every HZ, and neither is the default of the set, which a dump leaves out.
var renewals = [2]time.Duration{20 * time.Millisecond, 40 * time.Millisecond}

// renewInKernel does the same without the program nft, whose start takes longer than a
// heartbeat on a busy node, and which would be most of the cost of an idle agent.
//
// It moves the deadline in place where the kernel can. After a transaction that deletes, each
// program that closes a socket of netfilter waits for an RCU grace period: 15 ms on an idle
// machine, and seconds on a busy one (Linux 6.18).
func (t *Tables) renewInKernel(ctx context.Context, s *Set) error {
	var timeout time.Duration
	if t.triesToMove() {
		last, err := t.renewedElements(ctx, s)
		if err != nil {
			return err
		}
		if timeout = s.Timeout + renewals[0]; hasTimeout(last, timeout) {
			timeout = s.Timeout + renewals[1]
		}
		if err := t.addRenewed(ctx, s, timeout, false); err != nil {
			return err
		}
		now, err := t.renewedElements(ctx, s)
		if err != nil {
			return err
		}
		if hasTimeout(now, timeout) {
			// An element that ended between the readings is new, and says nothing.
			if len(last) == 1 && last[0].expires > s.Timeout/2 {
				t.moves.Store(true)
			}
			return nil
		}
		if unmoved(last, now) {
			t.replaces.Store(replacedBeats)
		}
		timeout = 0
	}
	return t.addRenewed(ctx, s, timeout, true)
}

// replacedBeats is how many renewals replace the element after the kernel did not move it: another agent's
// renewal between the readings looks the same.
const replacedBeats = 60

// triesToMove tells whether a renewal is to move the deadline in place.
func (t *Tables) triesToMove() bool {
	if t.replaces.Load() <= 0 {
		return true
	}
	t.replaces.Add(-1)
	return false
}

// addRenewed adds the element, with a timeout other than that of the set unless it
// is 0. With replace it removes the one that is there, in the same transaction.
func (t *Tables) addRenewed(ctx context.Context, s *Set, timeout time.Duration, replace bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m := wire.New(knftables.Family(t.names[0].Family), t.names[0].Name, func(string) ([]string, bool) { return s.types(), false })
	if replace {
		m.Flush(&knftables.Set{Name: s.Name})
	}
	m.AddFor(s.element([]string{s.Renewed}), timeout)
	_, err := m.Commit(t.kernel.sockets)
	return err
}

// renewedElement is an element of a set: its own timeout, 0 for that of the set, and how long
// it is going to live.
type renewedElement struct{ timeout, expires time.Duration }

// renewedElements lists the elements of a set.
func (t *Tables) renewedElements(ctx context.Context, s *Set) (out []renewedElement, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	err = t.kernel.dump(unix.NFT_MSG_GETSETELEM, wire.FamilyNumbers[knftables.Family(t.names[0].Family)], func(attrs []byte) {
		for _, list := range nfattr.All(attrs, unix.NFTA_SET_ELEM_LIST_ELEMENTS) {
			for _, element := range nfattr.All(list, unix.NFTA_LIST_ELEM) {
				a := nfattr.Parse(element)
				out = append(out, renewedElement{milliseconds(a[unix.NFTA_SET_ELEM_TIMEOUT]), milliseconds(a[unix.NFTA_SET_ELEM_EXPIRATION])})
			}
		}
	}, text(unix.NFTA_SET_ELEM_LIST_TABLE, t.names[0].Name), text(unix.NFTA_SET_ELEM_LIST_SET, s.Name))
	return out, err
}

func milliseconds(b []byte) time.Duration { return time.Duration(nfattr.Uint64(b)) * time.Millisecond }

// unmoved tells whether the kernel left an element as it was. An element that is gone, or
// that another agent renewed meanwhile, says nothing about the kernel.
func unmoved(last, now []renewedElement) bool {
	return len(last) == 1 && len(now) == 1 && last[0].timeout == now[0].timeout
}

// hasTimeout tells whether an element has a timeout, to the precision of the kernel's clock
// tick, which is at most 10 ms.
func hasTimeout(elements []renewedElement, d time.Duration) bool {
	return slices.ContainsFunc(elements, func(e renewedElement) bool { return (e.timeout - d).Abs() < 10*time.Millisecond })
}
