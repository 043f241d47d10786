package xtables

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/namegate/namegate/kernel/iptables"
)

// The chains that an earlier agent wrote by the other variant of iptables stay in force until
// this agent's rules are, and are removed then: two agents' rules together deny what either
// denies.

// removeStale removes the chains of the other variant. Until it has succeeded once, the sets of
// these chains cannot be destroyed.
func (r *rules) removeStale(ctx context.Context) error {
	if r.removed {
		return nil
	}
	if r.other != nil {
		if err := removeVariant(ctx, r.other); err != nil {
			return err
		}
	}
	r.removed = true
	return nil
}

// removeAll removes our chains, and the jumps to them, from all tables of each variant.
// It continues after an error and returns the first.
func (r *rules) removeAll(ctx context.Context) (first error) {
	for _, in := range r.variants() {
		if err := removeVariant(ctx, in); err != nil && first == nil {
			first = err
		}
	}
	return first
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
	return slices.ContainsFunc(slices.Collect(maps.Keys(chains)), func(name string) bool { return strings.HasPrefix(name, ChainPrefix) })
}

func removeVariant(ctx context.Context, in iptables.Interface) error {
	all, err := in.SaveAll(ctx)
	if err != nil {
		return err
	}
	for _, f := range families {
		for _, name := range slices.Sorted(maps.Keys(all[f])) {
			if err := removeTable(ctx, in, Table{f, name}, all[f][name]); err != nil {
				return err
			}
		}
	}
	return nil
}

func removeTable(ctx context.Context, in iptables.Interface, t Table, chains iptables.Chains) error {
	tx := iptables.NewTransaction(t.Family, t.Name)
	remove(tx, chains, func(string) bool { return false })
	return in.Restore(ctx, tx)
}

// remove adds to a transaction the deletion of those of a table's chains of ours that are
// not kept, and of every rule in another program's chain that jumps to one.
func remove(tx *iptables.Transaction, there iptables.Chains, keep func(chain string) bool) {
	for _, name := range slices.Sorted(maps.Keys(there)) {
		if strings.HasPrefix(name, ChainPrefix) {
			if !keep(name) {
				tx.Delete(name)
			}
			continue
		}
		for _, r := range there[name] {
			if to := iptables.Target(r); strings.HasPrefix(to, ChainPrefix) && !keep(to) {
				tx.Remove(name, r)
			}
		}
	}
}
