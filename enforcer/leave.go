package enforcer

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/namegate/namegate/kernel/iptables"
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
	for _, key := range e.strays {
		chains, err := e.k.Chains.Save(ctx, key.family, key.table)
		if err != nil {
			return err
		}
		if err := leaveTable(ctx, e.k.Chains, key, chains); err != nil {
			return err
		}
	}
	if e.k.OtherBackend != nil {
		if err := leaveAll(ctx, e.k.OtherBackend); err != nil {
			return err
		}
	}
	e.left = true
	return nil
}

// stray returns the tables that hold our chains and are none that is written.
func stray(all iptables.Everything) (out []chainsKey) {
	for f, byName := range all {
		for table, chains := range byName {
			if !slices.Contains(tables, table) && holdsOurs(chains) {
				out = append(out, chainsKey{f, table})
			}
		}
	}
	return out
}

// holdOurs tells whether any table holds our chains.
func holdOurs(all iptables.Everything) bool {
	for _, byName := range all {
		for _, chains := range byName {
			if holdsOurs(chains) {
				return true
			}
		}
	}
	return false
}

func holdsOurs(chains iptables.Chains) bool {
	for name := range chains {
		if strings.HasPrefix(name, chainPrefix) {
			return true
		}
	}
	return false
}

// leaveAll removes our chains, and the jumps to them, from all tables.
func leaveAll(ctx context.Context, in iptables.Interface) error {
	all, err := in.SaveAll(ctx)
	if err != nil {
		return err
	}
	for _, f := range ipVersions {
		for _, table := range slices.Sorted(maps.Keys(all[f])) {
			if err := leaveTable(ctx, in, chainsKey{f, table}, all[f][table]); err != nil {
				return err
			}
		}
	}
	return nil
}

func leaveTable(ctx context.Context, in iptables.Interface, key chainsKey, chains iptables.Chains) error {
	tx := iptables.NewTransaction(key.family, key.table)
	remove(tx, chains, func(string) bool { return false })
	return in.Restore(ctx, tx)
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
