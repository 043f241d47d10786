package nft

import (
	"context"
	"fmt"

	"github.com/namegate/namegate/kernel/nft/wire"
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

// Note has an element be in a set of the first table for the set's timeout, as Renew has that of its set. Where the
// kernel does not move deadlines one that is there ends at its own.
func (t *Tables) Note(ctx context.Context, s *Set, element string) error {
	err := t.generations.Urgent(func() error { return t.put(ctx, s, element, false) })
	if err != nil {
		return fmt.Errorf("add an element to nft set %s %s: %w", t.names[0], s.Name, err)
	}
	return nil
}

// renew adds the element. Where that does not move the deadline of one that is there, it removes that one in the same
// transaction: no time is without it. In the kernel it does without the program nft, whose start takes longer than a
// heartbeat on a busy node, and which would be most of the cost of an idle agent.
//
// After a transaction that deletes, each program that closes a socket of netfilter waits (see nfattr): 15 ms on an
// idle machine, and seconds on a busy one (Linux 6.18).
func (t *Tables) renew(ctx context.Context, s *Set) error { return t.put(ctx, s, s.Renewed, true) }

// put is renew for an element. alone: it is the only one.
func (t *Tables) put(ctx context.Context, s *Set, element string, alone bool) error {
	e, table := s.element(element), t.all[t.names[0]]
	if !t.direct {
		tx := table.NewTransaction()
		if alone {
			tx.Flush(reference(s.Name, false))
		}
		tx.Add(e)
		return table.Run(ctx, tx)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	m := wire.New(knftables.Family(t.names[0].Family), t.names[0].Name, func(string) ([]string, bool) { return s.types(), false })
	if alone && !t.moves {
		m.Flush(reference(s.Name, false))
	}
	m.AddFor(e, s.Timeout)
	_, err := m.Commit(t.kernel.changes)
	return err
}

// elementsOfRenewed returns the elements of Renew that a table has, or what others added to their sets. These are not
// emptied: the element may come or end meanwhile.
func (t *Tables) elementsOfRenewed(ctx context.Context, w *Table, others bool) (out []*knftables.Element, err error) {
	for _, s := range w.Layout.Sets {
		if s.Fill == Renewed {
			found, err := t.elements(ctx, w.Layout.ID, s)
			if err != nil {
				return nil, err
			}
			for _, text := range found {
				if (text == s.Renewed) != others {
					out = append(out, s.element(text))
				}
			}
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
