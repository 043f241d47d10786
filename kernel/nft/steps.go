package nft

import (
	"context"
	"maps"
	"slices"

	"github.com/namegate/namegate/kernel/nft/wire"
	"sigs.k8s.io/knftables"
)

// elementStep adds elements to sets and maps of a table, or removes them.
type elementStep struct {
	remove   bool
	elements []*knftables.Element
}

// changeElements makes steps in one transaction for a table of which of is the layout. The program
// nft would read every set of the host, and close a socket: see nfattr.Sockets.
func (t *Tables) changeElements(ctx context.Context, table knftables.Interface, of func() (*skeleton, error), steps ...elementStep) error {
	if t.direct {
		s, err := of()
		if err != nil {
			return err
		}
		m := wire.New(s.family, s.table)
		for _, step := range steps {
			step.writeTo(m, func(name string) ([]string, bool) { return s.types[name], s.intervals[name] })
		}
		return t.commitBatch(m)
	}
	tx := table.NewTransaction()
	for _, step := range steps {
		for _, e := range step.elements {
			if step.remove {
				tx.Delete(e)
			} else {
				tx.Add(e)
			}
		}
	}
	if tx.NumOperations() == 0 {
		return nil
	}
	return t.run(ctx, table, tx)
}

// commitBatch makes a transaction that changes something as a change of ours.
func (t *Tables) commitBatch(m *wire.Batch) error {
	if m.Empty() {
		return nil
	}
	return t.generations.Own(func() error {
		_, err := m.Commit(t.kernel.sockets)
		return err
	})
}

// writeTo writes a step, set by set.
func (s elementStep) writeTo(m *wire.Batch, typesOf func(set string) (types []string, interval bool)) {
	write := m.AddElements
	if s.remove {
		write = m.DeleteElements
	}
	bySet := map[string][]*knftables.Element{}
	for _, e := range s.elements {
		bySet[e.Set+e.Map] = append(bySet[e.Set+e.Map], e)
	}
	for _, name := range slices.Sorted(maps.Keys(bySet)) {
		types, interval := typesOf(name)
		write(bySet[name], types, interval)
	}
}
