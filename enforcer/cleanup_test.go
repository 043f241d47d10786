package enforcer

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
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
		if after := w.dump(); after != before {
			t.Errorf("after the clean-up:\n%s\nwant\n%s", after, before)
		}
		if after := w.addresses(); after != addresses {
			t.Errorf("addresses %s, want %s", after, addresses)
		}
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
		if after := f.dump(); after != before {
			t.Errorf("%s; after a second clean-up:\n%s", f.when, after)
		}
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
	if after := w.dump(); after != before {
		t.Errorf("after the clean-up:\n%s", after)
	}
	if names, _ := w.sets.Names(); !slices.Equal(names, []string{"KUBE-LOOP"}) {
		t.Errorf("sets %v", names)
	}
}
