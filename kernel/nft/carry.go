package nft

import (
	"context"
	"fmt"
	"slices"

	"github.com/namegate/namegate/kernel/nft/timed"
	"sigs.k8s.io/knftables"
)

// carry adds the entries of wanted sets to a transaction that makes the inet table anew, so
// that none is missing for a moment. The program nft does not take every comment: after the
// transaction the ops write them. The sets of kept stay with their entries.
func (t *Tables) carry(ctx context.Context, tx *knftables.Transaction, kept map[string]bool) (after []timed.Op, err error) {
	is, err := t.reader.objects(ctx, knftables.InetFamily, TableName)
	if err != nil {
		return nil, fmt.Errorf("read nft table %s: %w", TableName, err)
	}
	for _, s := range t.tiers.entries {
		op := timed.Op{Set: s.Name, Count: s.Count}
		for _, f := range families {
			if err := t.carrySet(tx, is, s.of(f), kept, &op); err != nil {
				return nil, err
			}
		}
		after = append(after, op)
	}
	for _, s := range t.tiers.grants {
		op := timed.Op{Set: s.Name, Grants: true, Count: true}
		for _, f := range families {
			if err := t.carrySet(tx, is, s.of(f), kept, &op); err != nil {
				return nil, err
			}
		}
		after = append(after, op)
	}
	return after, nil
}

// carrySet is carry for one set, unless another one has its name.
func (t *Tables) carrySet(tx *knftables.Transaction, is *contents, set *knftables.Set, kept map[string]bool, op *timed.Op) error {
	if op.Grants && kept[set.Name] {
		return nil
	}
	if is.elements[set.Name] == nil || is.forms != nil && is.forms[set.Name] != formOf(set) {
		return nil
	}
	all, err := t.ListQuiet(set.Name)
	if err != nil {
		return fmt.Errorf("list nft set %s %s: %w", TableName, set.Name, err)
	}
	for _, e := range all {
		words := e.Words()
		if !op.Grants {
			tx.Add(&knftables.Element{Set: timed.KeySet + suffix(e.Addr), Key: words})
		}
		if kept[set.Name] {
			continue
		}
		if t.direct {
			last := slices.Clone(words)
			last[len(last)-1] += fmt.Sprintf(" timeout %[1]dms expires %[1]dms", e.Timeout.Milliseconds())
			tx.Add(&knftables.Element{Set: set.Name, Key: last})
		}
		if !t.direct || e.Comment != "" {
			op.Entries = append(op.Entries, e)
		}
	}
	return nil
}
