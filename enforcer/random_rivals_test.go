package enforcer

import (
	"context"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/enforcer/iptables"
)

// rival changes something of ours, which must come back.
func (l *life) rival(change func(f iptables.Family)) {
	before := l.all()
	change(pick(l.r, ipVersions))
	l.reconcile()
	if after := l.all(); sortedLines(after) != sortedLines(before) {
		l.t.Fatalf("after %s not all is put back:\n%s\nwant\n%s", l.last, after, before)
	}
}

// removeRule takes one of our rules out.
func (l *life) removeRule(f iptables.Family) {
	table := pick(l.r, tables)
	all, err := l.chains.Save(context.Background(), f, table)
	if err != nil {
		l.t.Fatal(err)
	}
	chain := pick(l.r, slices.Sorted(maps.Keys(ours(chainsKey{f, table}, all))))
	if len(all[chain]) == 0 {
		return
	}
	tx := iptables.NewTransaction(f, table)
	tx.Remove(chain, pick(l.r, all[chain]))
	l.restore(tx)
}

// flushTable removes our chains of a table and all jumps to them.
func (l *life) flushTable(f iptables.Family) {
	table := pick(l.r, tables)
	all, err := l.chains.Save(context.Background(), f, table)
	if err != nil {
		l.t.Fatal(err)
	}
	tx := iptables.NewTransaction(f, table)
	for chain, rules := range ours(chainsKey{f, table}, all) {
		if strings.HasPrefix(chain, chainPrefix) {
			tx.Delete(chain)
			continue
		}
		for _, r := range rules {
			tx.Remove(chain, r)
		}
	}
	l.restore(tx)
}

// flushSet takes every address out of one of our sets.
func (l *life) flushSet(iptables.Family) {
	names, err := l.sets.Names()
	if err != nil {
		l.t.Fatal(err)
	}
	name := pick(l.r, names)
	entries, err := l.sets.List(name)
	if err == nil {
		err = l.sets.Delete(name, entries...)
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// flushElements empties one of our nft sets, or removes a table.
func (l *life) flushElements(f iptables.Family) {
	tx := l.inet.NewTransaction()
	if l.r.IntN(3) == 0 {
		tx.Delete(&knftables.Table{})
	} else {
		tx.Flush(&knftables.Set{Name: pick(l.r, []string{"selected", "intercepted", "known", "home", "homed"}) + map[iptables.Family]string{iptables.IPv4: "4", iptables.IPv6: "6"}[f]})
	}
	if err := l.inet.Run(context.Background(), tx); err != nil {
		l.t.Fatal(err)
	}
}
