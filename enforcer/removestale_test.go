package enforcer

import (
	"context"
	"strings"
	"testing"

	"github.com/namegate/namegate/enforcer/dataplane/xtables"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
)

// older writes the chains of an agent of another layout: they hook in where this one
// does not, and ask a set that this one does not have.
func older(t *testing.T, in *iptables.Fake, tables ...string) {
	t.Helper()
	for _, f := range ipVersions {
		for _, table := range tables {
			tx := iptables.NewTransaction(f, table)
			tx.Replace("NAMEGATE-OLD", "-m set --match-set "+setPrefix(f)+"chosen src -g NAMEGATE-OLDDROP")
			tx.Replace("NAMEGATE-OLDDROP", "-j DROP")
			tx.Replace("OTHER", "-m set --match-set "+setPrefix(f)+"chosen src -j NAMEGATE-OLD", "-j ACCEPT")
			tx.Insert("OUTPUT", "-m mark ! --mark 0x1/0x1 -j NAMEGATE-OLD")
			fatal.If(t, in.Restore(context.Background(), tx))
		}
	}
}

// oldLines counts what is left of it.
func oldLines(in *iptables.Fake) (n int) {
	for _, f := range ipVersions {
		for _, table := range allTables {
			n += strings.Count(in.Dump(f, table), "NAMEGATE-OLD")
		}
	}
	return n
}

func TestOlderLayoutIsRemovedAfterTheNewOneIsInForce(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name            string
		here, elsewhere []string
	}{
		{"in the same tables", []string{"mangle", "security"}, nil},
		{"by the other variant", nil, []string{"mangle", "security", "filter"}},
		{"everywhere", []string{"mangle"}, allTables},
	} {
		w := newNode(t)
		w.otherBackend = iptables.NewFake()
		older(t, w.chains, test.here...)
		older(t, w.otherBackend, test.elsewhere...)
		for _, f := range ipVersions {
			set := xtables.StaticSets()[0]
			set.Name, set.IPv6 = setPrefix(f)+"chosen", f == iptables.IPv6
			fatal.If(t, w.sets.Ensure(set))
		}
		w.restart()
		before := oldLines(w.chains) + oldLines(w.otherBackend)
		outside := oldLines(w.otherBackend)
		w.seams.before = func(step string) {
			if strings.HasPrefix(step, "restore") || strings.HasPrefix(step, "nft") {
				if got := oldLines(w.otherBackend); got != outside {
					t.Errorf("%s: before %s of the old only %d of %d lines are left", test.name, step, got, outside)
				}
			}
		}
		fatal.If(t, w.e.Prepare(context.Background(), w.compile([]policy.Pod{pod("web", "10.1.0.5", "allow")}, pol("allow", "tcp/443 www.example.org"))))
		if got := oldLines(w.chains) + oldLines(w.otherBackend); got != before || before == 0 {
			t.Errorf("%s: %d lines of the old are left before anything new is in force, want %d", test.name, got, before)
		}
		w.commit()
		w.seams.before = nil
		if got := oldLines(w.chains) + oldLines(w.otherBackend); got != 0 {
			t.Errorf("%s: %d lines of the old are left", test.name, got)
		}
		if names, err := w.sets.Names(); err != nil || strings.Contains(strings.Join(names, " "), "chosen") {
			t.Errorf("%s: of the old a set is left: %v, %v", test.name, names, err)
		}
		for _, table := range append(test.here, test.elsewhere...) {
			if !strings.Contains(w.chains.Dump(4, table)+w.otherBackend.Dump(4, table), "-A OTHER -j ACCEPT") {
				t.Errorf("%s: another program's rule in %s is gone", test.name, table)
			}
		}
		if !strings.Contains(w.chains.Dump(4, "security"), "-A FORWARD -j "+chainDrop) {
			t.Errorf("%s: the new net is not in force", test.name)
		}
	}
}

// Whose address each was is read where the earlier agent wrote it: what one pod was
// admitted for is not another's that has its address now.
func TestRecoveryFromTheOtherVariant(t *testing.T) {
	t.Parallel()
	w, _ := web(t)
	f := w.track("10.1.0.5:1001", "192.0.2.99:443")
	w.otherBackend, w.chains = w.chains, iptables.NewFake()
	w.restart()
	w.apply([]policy.Pod{pod("other", "10.1.0.5", "allow")}, pol("allow", "tcp/443 www.example.org"))
	if w.mark(f)&DefaultMark != 0 {
		t.Error("a connection of the pod that had the address is admitted")
	}
	for _, table := range tables {
		if strings.Contains(w.otherBackend.Dump(4, table), chainPrefix) {
			t.Errorf("of table %s something is left where the last agent wrote", table)
		}
	}
}

func TestCleanupByBothVariants(t *testing.T) {
	t.Parallel()
	w, _ := web(t)
	w.otherBackend = iptables.NewFake()
	older(t, w.otherBackend, "mangle", "filter")
	w.boot()
	fatal.If(t, w.e.Cleanup(context.Background()))
	for _, table := range allTables {
		if s := w.chains.Dump(4, table) + w.otherBackend.Dump(6, table); strings.Contains(s, chainPrefix) {
			t.Errorf("left in %s:\n%s", table, s)
		}
	}
}
