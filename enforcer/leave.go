package enforcer

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/namegate/namegate/enforcer/iptables"
)

// What an earlier agent wrote in another place than this one does, in another table
// or by the other variant of iptables, stays in force until this one's rules are, and
// is taken away then: two agents' rules together deny what either denies.

// leave takes away what earlier agents left outside of what was written. Until it has
// succeeded once the sets that are asked there cannot go.
func (e *Enforcer) leave(ctx context.Context) error {
	if e.left {
		return nil
	}
	for _, f := range ipVersions {
		if err := leaveTables(ctx, e.k.Chains, f, func(table string) bool { return !slices.Contains(tables, table) }); err != nil {
			return err
		}
		if e.k.Elsewhere == nil {
			continue
		}
		if err := leaveTables(ctx, e.k.Elsewhere, f, func(string) bool { return true }); err != nil {
			return err
		}
	}
	e.left = true
	return nil
}

// leaveTables removes our chains, and the jumps to them, from some tables.
func leaveTables(ctx context.Context, in iptables.Interface, f iptables.Family, which func(table string) bool) error {
	all, err := in.SaveAll(ctx, f)
	if err != nil {
		return err
	}
	for _, table := range slices.Sorted(maps.Keys(all)) {
		if !which(table) {
			continue
		}
		tx := iptables.NewTransaction(f, table)
		remove(tx, all[table], func(string) bool { return false })
		if err := in.Restore(ctx, tx); err != nil {
			return err
		}
	}
	return nil
}

// remove adds to a transaction the end of our chains of a table that are not kept,
// and of every rule of another's chain that leads to one.
func remove(tx *iptables.Transaction, there iptables.Chains, keep func(chain string) bool) {
	for _, name := range slices.Sorted(maps.Keys(there)) {
		if strings.HasPrefix(name, chainPrefix) {
			if !keep(name) {
				tx.Delete(name)
			}
			continue
		}
		for _, r := range there[name] {
			if to := iptables.Target(r); strings.HasPrefix(to, chainPrefix) && !keep(to) {
				tx.Remove(name, r)
			}
		}
	}
}
