package enforcer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// settled is a node with a pod of each kind and another program's rules.
func settled(t *testing.T) *world {
	w := newNode(t)
	for _, f := range ipVersions {
		for _, table := range tables {
			tx := iptables.NewTransaction(f, table)
			tx.Replace("OTHER", "-j ACCEPT")
			tx.Insert("FORWARD", "-j OTHER")
			w.restore(tx)
		}
	}
	w.links.SetHome(addr("10.1.0.5"), link.Home{Iface: "veth5"})
	w.links.SetHome(addr("10.1.0.6"), link.Home{Iface: "br0", Port: "port6"})
	w.restart()
	w.apply([]policy.Pod{pod("web", "10.1.0.5 2001:db8:1::5", "allow"), pod("db", "10.1.0.6", "allow")}, pol("allow", "tcp/443 www.example.org"))
	return w
}

func (w *world) restore(tx *iptables.Transaction) {
	w.t.Helper()
	fatal.If(w.t, w.chains.Restore(context.Background(), tx))
}

func (w *world) reconcile() {
	w.t.Helper()
	fatal.If(w.t, w.e.compare(context.Background(), true, true))
	if w.reprepare {
		w.reprepare = false
		fatal.If(w.t, w.rollOut(w.snap))
	}
}

// reconcileMembers is reconcile with the members of all sets compared.
func (w *world) reconcileMembers() {
	w.t.Helper()
	w.compareMembers()
	w.reconcile()
}

// compareMembers compares the kernel until all sets had their turn. It repairs nothing.
func (w *world) compareMembers() {
	w.t.Helper()
	for range 30 { // the members of at least four sets each time
		_ = w.e.compare(context.Background(), false, false)
	}
}

func TestReconcileOfAnIntactKernelWritesNothing(t *testing.T) {
	t.Parallel()
	w := settled(t)
	before := w.dump()
	w.seams.forget(0, false)
	w.reconcile()
	for _, step := range w.seams.written() {
		if !strings.HasPrefix(step, "list") && !strings.HasPrefix(step, "save") {
			t.Errorf("nothing is wrong, and yet: %s", step)
		}
	}
	if w.dump() != before || w.e.Status().Repairs != 0 {
		t.Error("something changed")
	}
}

// chainRivals are what programs do to chains, each by one transaction of a table.
var chainRivals = map[string]struct {
	table string
	does  func(tx *iptables.Transaction, all iptables.Chains)
}{
	"takes the jump to the home check": {"mangle", func(tx *iptables.Transaction, _ iptables.Chains) { tx.Remove("PREROUTING", "-j "+chainNames) }},
	"takes a jump of security":         {"security", func(tx *iptables.Transaction, _ iptables.Chains) { tx.Remove("FORWARD", "-j "+chainDrop) }},
	"takes a rule":                     {"security", func(tx *iptables.Transaction, _ iptables.Chains) { tx.Remove(chainDrop, "-j DROP") }},
	"takes the rules of a chain":       {"mangle", func(tx *iptables.Transaction, _ iptables.Chains) { tx.Replace(chainNamed) }},
	"writes another rule to a chain":   {"mangle", func(tx *iptables.Transaction, _ iptables.Chains) { tx.Replace(chainNamed, "-j ACCEPT") }},
	"takes a chain": {"security", func(tx *iptables.Transaction, _ iptables.Chains) {
		tx.Remove("FORWARD", "-j "+chainDrop)
		tx.Remove("INPUT", "-j "+chainDrop)
		tx.Delete(chainDrop)
	}},
	"takes all rules, as iptables -F does": {"mangle", func(tx *iptables.Transaction, all iptables.Chains) {
		for name := range all {
			if strings.HasPrefix(name, chainPrefix) {
				tx.Replace(name)
			}
		}
		tx.Remove("PREROUTING", "-j "+chainNames)
	}},
	"adds a chain of our name": {"mangle", func(tx *iptables.Transaction, _ iptables.Chains) { tx.Replace("NAMEGATE-MINE", "-j ACCEPT") }},
}

func TestReconcilePutsBack(t *testing.T) {
	t.Parallel()
	for what, rival := range chainRivals {
		for _, f := range ipVersions {
			w := settled(t)
			w.repairs(fmt.Sprint(what, " of ", f), func() error {
				all, err := w.chains.Save(context.Background(), f, rival.table)
				tx := iptables.NewTransaction(f, rival.table)
				rival.does(tx, all)
				return errors.Join(err, w.chains.Restore(context.Background(), tx))
			})
		}
	}
}

// sortedLines lets two dumps differ in the place of our jump among others'.
func sortedLines(s string) string {
	lines := strings.Split(s, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func TestReconcileLeavesOthersRulesWhereTheyAre(t *testing.T) {
	t.Parallel()
	w := settled(t)
	tx := iptables.NewTransaction(4, "security")
	tx.Replace("OTHER", "-j DROP")
	tx.Insert("FORWARD", "-p tcp -j ACCEPT")
	tx.Remove("INPUT", "-j "+chainDrop)
	w.restore(tx)
	w.reconcile()
	got := w.chains.Dump(4, "security")
	for _, want := range []string{"-A OTHER -j DROP\n", "-A FORWARD -p tcp -j ACCEPT\n", "-A FORWARD -j OTHER\n", "-A INPUT -j NAMEGATE-DROP\n"} {
		diff.Equal(t, 1, strings.Count(got, want), "after the repair", want)
	}
}

func TestRunReconcileFollowsLinks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply([]policy.Pod{pod("web", "10.1.0.5", "allow")}, pol("allow"))
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- w.e.RunReconcile(ctx) }()
	w.links.SetHome(addr("10.1.0.5"), link.Home{Iface: "veth5"})
	fatal.Await(t, "the home is noticed", func() bool { return len(w.e.Status().Homeless) == 0 })
	cancel()
	if err := <-over; err != nil {
		t.Error(err)
	}
}

// TestRepairsArePaced: at once after a rest, ever more slowly against a program that
// goes on.
func TestRepairsArePaced(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	var r repairs
	if r.wait(now) != 0 {
		t.Error("the first repair waits")
	}
	want := repairPause
	for range 10 {
		r.made(now)
		diff.Equal(t, want, r.wait(now), "the pause")
		now, want = now.Add(r.wait(now)), min(2*want, checkEvery)
	}
	for _, rest := range []time.Duration{2 * checkEvery, 2 * repairPause, time.Hour} {
		now = now.Add(rest)
		diff.Equal(t, 0, r.wait(now), "after", rest, "a repair waits")
		r.made(now)
		diff.Equal(t, repairPause, r.wait(now), "after", rest, "the pause")
	}
}

// TestSuspicionsArePaced: a kernel that refuses every grant does not keep the agent
// comparing all tables.
func TestSuspicionsArePaced(t *testing.T) {
	w := settled(t)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.e.RunReconcile(ctx) }()
	w.seams.forget(0, false)
	for until := time.Now().Add(firstCheck / 2); time.Now().Before(until) || len(w.seams.writes("list NG4-selected")) == 0; time.Sleep(time.Millisecond) {
		w.e.suspect()
	}
	stop()
	fatal.If(t, <-ended)
	// At once, and after 100 and 300 ms; Suspect may find further reasons.
	if looks := len(w.seams.writes("list NG4-selected")); looks > 40 {
		t.Errorf("%d comparisons", looks)
	}
}

// TestHomesThatCannotBeWrittenAreASuspicion: the kernel is compared before the next tick.
func TestHomesThatCannotBeWrittenAreASuspicion(t *testing.T) {
	t.Parallel()
	w, p := web(t)
	w.reconcile()
	w.links.SetHome(p.IPs[0], link.Home{Iface: "veth9"})
	w.seams.forget(1, false)
	w.e.settleHomes(context.Background())
	select {
	case <-w.e.suspected:
	default:
		t.Errorf("%q failed, and nothing compares the kernel before the next tick", w.seams.failed)
	}
}

// A bridged pod that becomes selected is in the set "homed" before the chain of
// ports knows it: meanwhile every packet of it is dropped, established or not.
// So is a routed one where "homed" happens to be written before "home".
func TestBecomingSelectedDropsNothingAtHome(t *testing.T) {
	t.Parallel()
	for _, home := range []link.Home{{Iface: "veth5"}, {Iface: "br0", Port: "port5"}} {
		for range 10 {
			w := newWorld(t)
			w.links.SetHome(addr("10.1.0.5"), home)
			web := pod("web", "10.1.0.5", "allow")
			w.apply([]policy.Pod{web})
			dropped := ""
			w.seams.before = func(step string) {
				if dropped == "" && !w.at("10.1.0.5", home.Iface, home.Port) {
					dropped = step
				}
			}
			w.apply([]policy.Pod{web}, pol("allow"))
			if dropped != "" {
				t.Errorf("at home on %v, and dropped before: %s", home, dropped)
				break
			}
		}
	}
}

// TestLooksForChangesRest: looks that find nothing take a tenth of the time, and those that
// repair do not wait.
func TestLooksForChangesRest(t *testing.T) {
	t.Parallel()
	var r rest
	began := time.Unix(1_700_000_000, 0)
	for _, step := range []struct {
		took, since time.Duration
		repaired    bool
		want        time.Duration
	}{
		{0, 0, false, 0},
		{200 * time.Millisecond, 0, false, 1800 * time.Millisecond},
		{200 * time.Millisecond, time.Second, false, 800 * time.Millisecond},
		{200 * time.Millisecond, 2 * time.Second, false, 0},
		{200 * time.Millisecond, 0, true, 0},
	} {
		ended := began.Add(step.took)
		r.looked(began, ended, step.repaired)
		diff.Equal(t, step.want, r.wait(ended.Add(step.since)), step.since, "after a look of", step.took, "which repaired", step.repaired)
	}
	diff.Equal(t, 0, (&rest{}).wait(began), "the first look waits")
}

// TestALookReplacesThePlannedOne: a deviation of grants shows in a look at everything alone, and
// a check that comes by itself looks at less.
func TestALookReplacesThePlannedOne(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ planned, all, want bool }{{}, {all: true, want: true}, {planned: true, want: true}, {planned: true, all: true, want: true}} {
		var p planned
		if test.planned {
			p.look = make(chan time.Time)
		}
		if got := p.replaced(test.all); got != test.want || p.look != nil {
			t.Errorf("%+v: at everything: %v, planned still: %v", test, got, p.look != nil)
		}
	}
}
