package enforcer

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/testkit/fatal"
)

// rival changes something of ours, which must come back within some checks.
func (l *life) rival(change func(f iptables.Family)) {
	before := l.all()
	change(pick(l.r, ipVersions))
	l.reconcileMembers()
	if after := l.all(); sortedLines(after) != sortedLines(before) {
		l.t.Fatalf("after %s not all is put back:\n%s\nwant\n%s", l.last, after, before)
	}
}

// removeRule takes one of our rules out.
func (l *life) removeRule(f iptables.Family) {
	table := pick(l.r, tables)
	all, err := l.chains.Save(context.Background(), f, table)
	fatal.If(l.t, err)
	chains := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(name string) bool {
		return !strings.HasPrefix(name, chainPrefix) && !slices.ContainsFunc(all[name], func(r string) bool { return strings.HasPrefix(iptables.Target(r), chainPrefix) })
	})
	chain := pick(l.r, chains)
	if len(all[chain]) == 0 {
		return
	}
	tx := iptables.NewTransaction(f, table)
	tx.Remove(chain, pick(l.r, all[chain]))
	l.restore(tx)
}

// flushTable flushes one of our tables.
func (l *life) flushTable(f iptables.Family) { l.flushChains(f, pick(l.r, tables)) }

// flushChains removes our chains of a table and all jumps to them.
func (w *world) flushChains(f iptables.Family, table string) {
	all, err := w.chains.Save(context.Background(), f, table)
	fatal.If(w.t, err)
	tx := iptables.NewTransaction(f, table)
	removeOurs(tx, all)
	w.restore(tx)
}

// flushSet takes every address out of one of our sets.
func (l *life) flushSet(iptables.Family) {
	fatal.If(l.t, l.flush(pick(l.r, l.setNames())))
}

// flushElements empties one of our nft sets, or removes a table.
func (l *life) flushElements(f iptables.Family) {
	tx := l.inet.NewTransaction()
	if l.r.IntN(3) == 0 {
		tx.Delete(&knftables.Table{})
	} else {
		tx.Flush(&knftables.Set{Name: pick(l.r, []string{"selected", "intercepted", "known", "home", "homed"}) + map[iptables.Family]string{iptables.IPv4: "4", iptables.IPv6: "6"}[f]})
	}
	fatal.If(l.t, l.inet.Run(context.Background(), tx))
}

// writeEntries takes an entry out of one of our sets, and puts another in.
func (l *life) writeEntries(f iptables.Family) {
	name := pick(l.r, slices.DeleteFunc(l.setNames(), func(n string) bool { return !strings.HasPrefix(n, setPrefix(f)) }))
	entries, err := l.sets.List(name)
	fatal.If(l.t, err)
	if len(entries) > 0 && l.r.IntN(3) > 0 {
		fatal.If(l.t, l.sets.Delete(name, pick(l.r, entries)))
	}
	if len(entries) > 0 && l.r.IntN(3) == 0 {
		return
	}
	strange := ipset.Entry{Addr: addr("203.0.113.9")}
	if f == iptables.IPv6 {
		strange.Addr = addr("2001:db8:9::9")
	}
	switch {
	case strings.HasSuffix(name, setHome):
		strange.Iface = "veth99"
	case strings.HasSuffix(name, "-ports"):
		strange.Protocol, strange.Port = 6, pick(l.r, []uint16{80, 443, 9999})
	}
	fatal.If(l.t, l.sets.Add(name, strange))
}

// destroySet destroys a set, and first everything that asks it.
func (l *life) destroySet(f iptables.Family) {
	name := pick(l.r, l.setNames())
	for _, table := range tables {
		l.flushChains(f, table)
		l.flushChains(iptables.IPv4+iptables.IPv6-f, table)
	}
	l.sets.Refer(name, false)
	fatal.If(l.t, l.sets.Destroy(name))
}

// tellBoth lets the clock tell two times: what it is set to, and for how long the
// kernel's own has run, which cannot be set.
func (l *life) tellBoth() {
	const ran = 5000 * time.Second
	start := twoClocks(l.t, l.clock.Now(), ran)
	l.clock.Set(start)
	l.ran = func() time.Duration { return ran + l.clock.Now().Sub(start) }
}

// stepClock sets the clock, forth or back by up to two days.
func (l *life) stepClock() {
	d := time.Duration(l.r.Int64N(int64(96*time.Hour))) - 48*time.Hour
	l.clock.Set(twoClocks(l.t, l.clock.Now().Round(0).Add(d), l.ran()))
}
