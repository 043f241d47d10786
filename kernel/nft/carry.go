package nft

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"sigs.k8s.io/knftables"
)

// carrying notes the ops that come while a table made anew takes over the entries of the one
// before. Those ops changed the table before, of which the entries are read already: they are
// applied once more, in their order, to the new table.
type carrying struct {
	underWay sync.RWMutex // each op holds it
	on       bool         // changed by the holder of all of underWay
	mu       sync.Mutex
	ops      []EntryOp
}

// begin waits for the ops that are under way, and has later ones noted.
func (c *carrying) begin() {
	c.underWay.Lock()
	defer c.underWay.Unlock()
	c.on = true
}

// note is called before ops are applied, done after it.
func (c *carrying) note(ops []EntryOp) (done func()) {
	c.underWay.RLock()
	if c.on {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, op := range ops {
			op.Entries = slices.Clone(op.Entries)
			c.ops = append(c.ops, op)
		}
	}
	return c.underWay.RUnlock
}

// end notes no more ops, and applies those that were noted. Later ops wait: without end, ops
// that come as fast as they are applied would be noted for ever.
func (c *carrying) end(apply func([]EntryOp)) {
	c.underWay.Lock()
	defer c.underWay.Unlock()
	apply(c.ops)
	c.on, c.ops = false, nil
}

// carry adds the entries of wanted sets to a transaction that makes the inet table anew, so
// that none is missing for a moment. The program nft does not take every comment: after the
// transaction the ops write them. The sets of kept stay with their entries.
func (t *Tables) carry(ctx context.Context, tx *knftables.Transaction, kept map[string]bool) (after []EntryOp, err error) {
	is, err := t.reader.objects(ctx, knftables.InetFamily, TableName)
	if err != nil {
		return nil, fmt.Errorf("read nft table %s: %w", TableName, err)
	}
	for _, s := range t.tiers.entries {
		op := EntryOp{Set: s.Name, Count: s.Renew == 0}
		for _, f := range families {
			if err := t.carrySet(tx, is, s.of(f), kept, &op); err != nil {
				return nil, err
			}
		}
		after = append(after, op)
	}
	for _, s := range t.tiers.grants {
		op := EntryOp{Set: s.Name, Grants: true, Count: true}
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
func (t *Tables) carrySet(tx *knftables.Transaction, is *contents, set *knftables.Set, kept map[string]bool, op *EntryOp) error {
	if op.Grants && kept[set.Name] {
		return nil
	}
	if is.elements[set.Name] == nil || is.forms != nil && is.forms[set.Name] != formOf(set) {
		return nil
	}
	all, err := t.listStill(set.Name, func(_ int, list func() error) error { return list() })
	if err != nil {
		return fmt.Errorf("list nft set %s %s: %w", TableName, set.Name, err)
	}
	for _, e := range all {
		words := e.words()
		if !op.Grants {
			tx.Add(&knftables.Element{Set: namedSet + suffix(e.Addr), Key: words})
		}
		if kept[set.Name] {
			continue
		}
		if t.list != nil {
			last := slices.Clone(words)
			last[len(last)-1] += fmt.Sprintf(" timeout %[1]dms expires %[1]dms", e.Timeout.Milliseconds())
			tx.Add(&knftables.Element{Set: set.Name, Key: last})
		}
		if t.list == nil || e.Comment != "" {
			op.Entries = append(op.Entries, e)
		}
	}
	return nil
}
