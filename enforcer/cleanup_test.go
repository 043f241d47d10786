package enforcer

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/enforcer/dataplane/xtables"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/iptablestest"
)

// shared is a node with other programs' sets, chains and addresses.
func shared(t *testing.T) *world {
	w := newNode(t)
	fatal.If(t, w.sets.Ensure(ipset.Set{Name: "KUBE-LOOP", Type: ipset.HashIP}))
	fatal.If(t, w.sets.Add("KUBE-LOOP", ipset.Entry{Addr: addr("10.1.0.5")}))
	for _, f := range ipVersions {
		for _, table := range tables {
			tx := iptables.NewTransaction(f, table)
			tx.Replace("KUBE-FORWARD", "-p tcp -j ACCEPT")
			tx.Replace("NAMEGATES-FRIEND", "-j RETURN")
			tx.Insert("OUTPUT", "-j KUBE-FORWARD")
			w.restore(tx)
		}
	}
	return w
}

// addresses returns those of the node as text.
func (w *world) addresses() string {
	w.t.Helper()
	all, err := w.links.Addrs()
	fatal.If(w.t, err)
	var out []string
	for _, a := range all {
		out = append(out, a.String())
	}
	return strings.Join(out, " ")
}

func TestCleanupKeepsOtherProgramsObjects(t *testing.T) {
	t.Parallel()
	for _, started := range []bool{true, false} {
		w := shared(t)
		before, addresses := w.dump(), w.addresses()
		w.restart()
		web, db := pod("web", "10.1.0.5 2001:db8:1::5", "allow"), pod("db", "10.1.0.6", "allow")
		w.apply([]policy.Pod{web, db}, pol("allow", "tcp/443 www.example.org"))
		w.answer(web, "www.example.org", 60, "192.0.2.1 2001:db8::1")
		open, open6, others := w.track("10.1.0.5:1001", "192.0.2.1:443"), w.track("[2001:db8:1::5]:1001", "[2001:db8::1]:443"), w.track("10.9.0.1:1001", "192.0.2.1:443")
		if !started {
			w.boot() // the subcommand, after the agent has gone
		}
		fatal.If(t, w.e.Cleanup(context.Background()))
		diff.Error(t, before, w.dump(), "after the clean-up")
		diff.Equal(t, addresses, w.addresses(), "addresses")
		if w.admitted(open) || w.admitted(open6) || !w.admitted(others) {
			t.Error("a later agent must judge the pods' connections anew; others' marks are not ours")
		}
		if err := w.e.Cleanup(context.Background()); err != nil {
			t.Errorf("a second time: %v", err)
		}
	}
}

func TestCleanupContinuesAfterAnError(t *testing.T) {
	t.Parallel()
	before := ""
	eachFault(t, 2, false, func() (*world, func() error) {
		w := shared(t)
		before = w.dump()
		w.restart()
		w.apply([]policy.Pod{pod("web", "10.1.0.5", "allow")}, pol("allow", "tcp/443 www.example.org"))
		w.track("10.1.0.5:1001", "192.0.2.1:443")
		return w, func() error { return w.e.Cleanup(context.Background()) }
	}, func(f fault) {
		if !errors.Is(f.err, errInjected) && !ipset.IsBusy(f.err) {
			t.Errorf("%s, and the clean-up says %v", f.when, f.err)
		}
		if strings.Contains(f.inet.Dump(), "intercepted4 {") && strings.Contains(f.chains.Dump(4, "security"), chainDrop) {
			t.Errorf("%s, and neither interception nor the chains are gone", f.when)
		}
		if err := f.e.Cleanup(context.Background()); err != nil {
			t.Errorf("%s: once more: %v", f.when, err)
		}
		diff.Error(t, before, f.dump(), f.when, "after a second clean-up")
	})
}

func TestCleanupRemovesJumpsFromOtherChains(t *testing.T) {
	t.Parallel()
	w := shared(t)
	before := w.dump()
	w.restart()
	w.apply(nil)
	tx := iptables.NewTransaction(4, "mangle")
	tx.Insert("KUBE-FORWARD", "-i eth0 -j "+chainNames)
	w.restore(tx)
	fatal.If(t, w.e.Cleanup(context.Background()))
	diff.Error(t, before, w.dump(), "after the clean-up")
	if names := w.setNames(); !slices.Equal(names, []string{"KUBE-LOOP"}) {
		t.Errorf("sets %v", names)
	}
}

// older writes the chains of an agent of another layout: they hook in where this one
// does not, and ask a set that this one does not have.
func older(t *testing.T, in *iptablestest.Fake, tables ...string) {
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
func oldLines(in *iptablestest.Fake) (n int) {
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
		w.otherBackend = iptablestest.NewFake()
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
				diff.Equal(t, outside, oldLines(w.otherBackend), test.name, "before", step, "lines of the old")
			}
		}
		fatal.If(t, w.e.Prepare(context.Background(), w.compile([]policy.Pod{pod("web", "10.1.0.5", "allow")}, pol("allow", "tcp/443 www.example.org"))))
		if got := oldLines(w.chains) + oldLines(w.otherBackend); got != before || before == 0 {
			t.Errorf("%s: %d lines of the old are left before anything new is in force, want %d", test.name, got, before)
		}
		w.commit()
		w.seams.before = nil
		diff.Equal(t, 0, oldLines(w.chains)+oldLines(w.otherBackend), test.name, "lines of the old are left")
		if names := w.setNames(); strings.Contains(strings.Join(names, " "), "chosen") {
			t.Errorf("%s: of the old a set is left: %v", test.name, names)
		}
		for _, table := range append(test.here, test.elsewhere...) {
			diff.Has(t, "-A OTHER -j ACCEPT", w.chains.Dump(4, table)+w.otherBackend.Dump(4, table), test.name, "another program's rule in", table)
		}
		diff.Has(t, "-A FORWARD -j "+chainDrop, w.chains.Dump(4, "security"), test.name, "the new net")
	}
}

// Whose address each was is read where the earlier agent wrote it: what one pod was
// admitted for is not another's that has its address now.
func TestRecoveryFromTheOtherVariant(t *testing.T) {
	t.Parallel()
	w, _ := web(t)
	f := w.track("10.1.0.5:1001", "192.0.2.99:443")
	w.otherBackend, w.chains = w.chains, iptablestest.NewFake()
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
	w.otherBackend = iptablestest.NewFake()
	older(t, w.otherBackend, "mangle", "filter")
	w.boot()
	fatal.If(t, w.e.Cleanup(context.Background()))
	for _, table := range allTables {
		if s := w.chains.Dump(4, table) + w.otherBackend.Dump(6, table); strings.Contains(s, chainPrefix) {
			t.Errorf("left in %s:\n%s", table, s)
		}
	}
}

func TestStartRefusesATakenBit(t *testing.T) {
	t.Parallel()
	tests := []struct {
		family       iptables.Family
		table, chain string
		rule, taken  string
	}{
		{iptables.IPv4, "nat", "PREROUTING", "-m mark --mark 0x40/0x40 -j RETURN", "IPv4 nat: -A PREROUTING -m mark --mark 0x40/0x40 -j RETURN"},
		{iptables.IPv6, "mangle", "OTHER", "-j MARK --set-xmark 0xff/0xff", "IPv6 mangle: -A OTHER -j MARK --set-xmark 0xff/0xff"},
		{iptables.IPv4, "nat", "POSTROUTING", "-m mark --mark 0x20/0x20 -j RETURN", "mark bit 0x20 is used by another rule (IPv4 nat: -A POSTROUTING -m mark --mark 0x20/0x20 -j RETURN)"},
		{iptables.IPv4, "mangle", "FORWARD", "-j CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xffffffff", "IPv4 mangle: -A FORWARD -j CONNMARK --restore-mark"},
		{iptables.IPv4, "filter", "FORWARD", "-m mark --mark 0x80/0x80 -j ACCEPT", ""},
		{iptables.IPv4, "mangle", "NAMEGATE-OLD", "-j MARK --set-xmark 0x40/0x40", ""},
	}
	for i, test := range slices.Concat(tests, tests) {
		w := newNode(t)
		w.otherBackend = iptablestest.NewFake()
		tx := iptables.NewTransaction(test.family, test.table)
		tx.Replace(test.chain, test.rule)
		// By either variant.
		fatal.If(t, []*iptablestest.Fake{w.chains, w.otherBackend}[i/len(tests)].Restore(context.Background(), tx))
		w.boot()
		_, err := w.e.Start(context.Background())
		if test.taken == "" {
			if err != nil {
				t.Errorf("%s in %s: %v", test.rule, test.chain, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), test.taken) || !strings.Contains(err.Error(), "directive mark") {
			t.Errorf("the error must name the rule %q and the directive, got: %v", test.taken, err)
		}
		if names := w.setNames(); len(names) > 0 {
			t.Errorf("a refused start has made the sets %v", names)
		}
	}
}

func TestNewRefusesInvalidConfigurations(t *testing.T) {
	t.Parallel()
	for _, cfg := range []Config{
		{Mark: 0, Candidate: 0x20, Accepted: 1}, {Mark: 0x41, Candidate: 0x20, Accepted: 2}, {Mark: 0x40, Accepted: 1}, {Mark: 0x40, Candidate: 0x60, Accepted: 1},
		{Mark: 0x40, Candidate: 0x40, Accepted: 1}, {Mark: 0x40, Candidate: 0x20}, {Mark: 0x40, Candidate: 0x20, Accepted: 0x20},
		{Mark: 0x40, Candidate: 0x20, Accepted: 1, Hold: -1}, {Mark: 0x40, Candidate: 0x20, Accepted: 1, Hold: 1 << 60},
	} {
		if _, err := New(cfg, Kernel{}, nil, nil); err == nil {
			t.Errorf("New takes %+v", cfg)
		}
	}
}
