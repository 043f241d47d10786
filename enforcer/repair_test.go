package enforcer

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane/xtables"
	"github.com/namegate/namegate/enforcer/handover"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/granttest"
)

// setRivals are what programs do to sets, each by one write.
var setRivals = map[string]func(w *world, p policy.Pod) error{
	"flushes the selected": func(w *world, _ policy.Pod) error { return w.flush("NG4-selected") },
	"flushes the judged":   func(w *world, _ policy.Pod) error { return w.flush("NG6-judged") },
	"selects a stranger": func(w *world, _ policy.Pod) error {
		return w.sets.Add("NG4-selected", ipset.Entry{Addr: addr("203.0.113.9")})
	},
	"flushes a pod's set": func(w *world, p policy.Pod) error {
		return w.flush(xtables.GrantSetName(p.PodRef, https, iptables.IPv4))
	},
	"takes an address": func(w *world, p policy.Pod) error {
		return w.sets.Delete(xtables.GrantSetName(p.PodRef, https, iptables.IPv4), httpsEntry(addr("192.0.2.1")))
	},
	"opens an address": func(w *world, p policy.Pod) error {
		return w.sets.Add(xtables.GrantSetName(p.PodRef, https, iptables.IPv4), httpsEntry(addr("203.0.113.9")))
	},
	"destroys a set": func(w *world, p policy.Pod) error {
		name := xtables.GrantSetName(p.PodRef, https, iptables.IPv6)
		w.sets.Refer(name, false)
		return w.sets.Destroy(name)
	},
}

func (w *world) flush(set string) error {
	entries, err := w.sets.List(set)
	if err != nil {
		return err
	}
	return w.sets.Delete(set, entries...)
}

// answeredWeb is web with two addresses open.
func answeredWeb(t *testing.T) (*world, policy.Pod) {
	w, p := web(t)
	w.answer(p, "www.example.org", 600, "192.0.2.1 192.0.2.2")
	w.answer(p, "www.example.org", 600, "2001:db8::1")
	return w, p
}

// Suspect finds each, well before the periodic check, and it is repaired once.
func TestChangedSetsAreDetectedImmediately(t *testing.T) {
	t.Parallel()
	for what, rival := range setRivals {
		w, p := answeredWeb(t)
		w.repairs(what, func() error {
			if w.e.touched() {
				t.Fatalf("a program %s: something shows before", what)
			}
			err := rival(w, p)
			if !w.e.touched() {
				t.Errorf("a program %s, and nothing shows", what)
			}
			return err
		})
		if w.e.touched() {
			t.Errorf("a program %s, and after the repair it still shows", what)
		}
	}
}

// TestSetsThatGoBeforeAnythingAsksThem: a program may destroy them until then. The write of a static set creates it
// again, and for a set of grants the roll-outs go on at the second try.
func TestSetsThatGoBeforeAnythingAsksThem(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"grants", "judged"} {
		for _, follows := range []bool{false, true} {
			w := newWorld(t)
			if follows {
				w.apply(nil)
				w.restart()
			}
			client := pod("client", "10.1.0.5", "allow", "np")
			w.netpols = append(w.netpols, netpol("np", "tcp/80 db"))
			w.remote = append(w.remote, far("db", "10.2.0.1", "db"))
			s := w.compile([]policy.Pod{client}, pol("allow", "tcp/443 www.example.org"))
			grants := w.grants(s, client.PodRef, "www.example.org", 60, "192.0.2.1")
			victim := map[string][2]string{ // the set, and the step before which it goes
				"grants": {xtables.GrantSetName(client.PodRef, https, 4), "restore"},
				"judged": {"NG4-" + setDispatched, "list NG4-" + setDispatched},
			}[kind]
			gone := false
			w.seams.before = func(step string) {
				if !gone && strings.HasPrefix(step, victim[1]) {
					gone = w.sets.Destroy(victim[0]) == nil
				}
			}
			try := func() error {
				if err := w.e.Prepare(context.Background(), s); err != nil {
					return err
				}
				if err := granttest.Grant(context.Background(), w.e.grants, grants); err != nil {
					return err
				}
				return w.e.Commit(context.Background())
			}
			if err := try(); (err == nil) != (kind == "judged") || !gone {
				t.Errorf("%s, follows %v: gone %v, and the first try says %v", kind, follows, gone, err)
			}
			if err := try(); err != nil {
				t.Errorf("%s, follows %v: %v", kind, follows, err)
			}
			if !w.reaches("10.1.0.5", "10.2.0.1:80", policy.TCP) || !w.dials("10.1.0.5", "192.0.2.1", 443) {
				t.Errorf("%s, follows %v: a peer or a grant is closed", kind, follows)
			}
		}
	}
}

// wrongSets returns the sets that the dataplane finds to deviate.
func (w *world) wrongSets() []string {
	w.t.Helper()
	found, err := w.e.plane.Verify(context.Background(), w.e.state(w.e.inForce()), false)
	fatal.If(w.t, err)
	return slices.DeleteFunc(found, func(o string) bool { return !strings.HasPrefix(o, "set ") })
}

// repairs lets a program do something, which is repaired once.
func (w *world) repairs(what string, rival func() error) {
	w.t.Helper()
	w.reconcile() // what was written is compared once
	before := sortedLines(w.dump())
	fatal.If(w.t, rival())
	if sortedLines(w.dump()) == before {
		w.t.Fatalf("a program %s, and nothing changed", what)
	}
	w.reconcile()
	diff.Error(w.t, before, sortedLines(w.dump()), "a program", what, "after the repair")
	diff.Equal(w.t, 1, w.e.Status().Repairs, "a program", what, "repairs")
	w.seams.forget(0, false)
	w.reconcile()
	if again := w.seams.writes("restore"); len(again) > 0 || w.e.Status().Repairs != 1 {
		w.t.Errorf("a program %s, which is repaired twice: %v", what, again)
	}
}

// TestASurveyThatFailsIsNotFresh: the chains of all programs are read again before the first write, where that
// reading failed.
func TestASurveyThatFailsIsNotFresh(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.clock.Pass(time.Minute)
	s := w.compile([]policy.Pod{pod("web", "10.1.0.5", "allow")}, pol("allow"))
	w.seams.refuse = "save all"
	if w.e.Prepare(context.Background(), s) == nil {
		t.Fatal("the chains cannot be read, and are written")
	}
	w.seams.forget(0, false)
	w.seams.refuse = ""
	if w.prepare(s); len(w.seams.writes("save all")) != 1 {
		t.Errorf("the chains are not read: %q", w.seams.written())
	}
}

// The loop itself looks, soon.
func TestRunReconcilePutsEntriesBack(t *testing.T) {
	w, p := answeredWeb(t)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- w.e.RunReconcile(ctx) }()
	for _, set := range []string{"NG4-selected", xtables.GrantSetName(p.PodRef, https, iptables.IPv4)} {
		var took []time.Duration
		for range 3 {
			repairs := w.e.Status().Repairs
			fatal.If(t, w.flush(set))
			flushed := time.Now()
			fatal.Await(t, set+" is filled again", func() bool { return w.e.Status().Repairs != repairs })
			took = append(took, time.Since(flushed))
		}
		if slices.Sort(took); took[1] > checkEvery-time.Second {
			t.Errorf("%s is filled again after %v, most often by the check that comes by itself", set, took)
		}
	}
	cancel()
	if err := <-over; err != nil {
		t.Error(err)
	}
}

// While another agent grants too, what one does not know may be the other's.
func TestOtherAgentsGrantsStay(t *testing.T) {
	t.Parallel()
	w, p := answeredWeb(t)
	w.e.predecessor = handover.NewPredecessor(func(netip.Addr) bool { return true }, w.clock.Now)
	w.e.predecessor.Find(addrs("169.254.20.99"), nil)
	w.reconcileMembers()
	repairs := w.e.Status().Repairs
	fatal.If(t, setRivals["opens an address"](w, p))
	w.reconcileMembers()
	if w.left(p, https, "192.0.2.1") == 0 || len(w.entries(p, https, iptables.IPv4)) != 3 || w.e.Status().Repairs != repairs {
		t.Errorf("%v, %d repairs", w.entries(p, https, iptables.IPv4), w.e.Status().Repairs-repairs)
	}
}

// Grants that come and go while it is looked are no rival's.
func TestALookAmongGrants(t *testing.T) {
	t.Parallel()
	w, pods := onKernel(t, 20)
	stop := make(chan struct{})
	granted := make(chan struct{})
	asked := granttest.Fresh(w.snap, pods, 6000, w.clock.Now())
	go func() {
		defer close(granted)
		for _, g := range asked {
			if err := granttest.Grant(context.Background(), w.e.grants, g); err != nil {
				t.Error(err)
				return
			}
		}
		close(stop)
	}()
	looks := 0
	for over := false; !over; looks++ {
		select {
		case <-stop:
			over = true
		case <-granted:
			over = true
		default:
		}
		if wrong := w.wrongSets(); len(wrong) > 0 {
			t.Fatalf("%v are thought to be wrong", wrong)
		}
	}
	<-granted
	t.Logf("%d looks", looks)
	taken := []ipset.Op{{Set: xtables.GrantSetName(pods[7].PodRef, https, iptables.IPv4), Delete: true, Entries: []ipset.Entry{httpsEntry(asked[7][0].Addrs[0])}}}
	w.real.Apply(taken)
	fatal.If(t, taken[0].Err)
	want := "set " + xtables.GrantSetName(pods[7].PodRef, https, iptables.IPv4)
	if wrong := w.wrongSets(); !slices.Equal(wrong, []string{want}) {
		t.Errorf("%v are thought to be wrong, want %s", wrong, want)
	}
}

// An entry for another changes no size: all sets are looked at closely in turn.
func TestExchangedEntriesAreFoundInTurn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var pods []policy.Pod
	for i := range 40 {
		pods = append(pods, pod(fmt.Sprintf("p%d", i), fmt.Sprintf("10.1.0.%d", i+1), "allow"))
	}
	w.apply(pods, pol("allow", "tcp/443 www.example.org"))
	for _, p := range pods {
		w.answer(p, "www.example.org", 600, "192.0.2.1")
	}
	before := sortedLines(w.dump())
	for _, p := range pods {
		fatal.If(t, w.flush(xtables.GrantSetName(p.PodRef, https, iptables.IPv4)))
		fatal.If(t, w.sets.Add(xtables.GrantSetName(p.PodRef, https, iptables.IPv4), httpsEntry(addr("203.0.113.9"))))
	}
	// Each check compares the members of a few more sets than the last one did.
	w.seams.forget(0, false)
	w.reconcile()
	if got := w.e.Status().Repairs; got > 4 {
		t.Errorf("%d repairs after the first check", got)
	}
	for range 20 {
		w.reconcile()
	}
	if after := sortedLines(w.dump()); after != before || strings.Contains(after, "203.0.113.9") {
		t.Error("not all entries are put back")
	}
}

// A status is told although another program holds up a write.
func TestStatusWhileAWriteHangs(t *testing.T) {
	t.Parallel()
	w, _ := answeredWeb(t)
	want := w.e.Status()
	w.e.apply.Lock()
	began := w.clock.Now()
	w.e.repairs.Add(1)
	got := w.e.Status()
	if got.Selected != want.Selected || got.Grants != want.Grants || len(got.Serving) != len(want.Serving) || got.Repairs != want.Repairs+1 || len(got.Deviations) > 0 {
		t.Errorf("%+v, want %+v and a repair more", got, want)
	}
	w.clock.Pass(writeGrace)
	if got := w.e.Status().Deviations; len(got) != 1 || got[0].Object != "write" || !got[0].Since.Equal(began) || got[0].Error == "" {
		t.Errorf("after %v deviate %+v", writeGrace, got)
	}
	w.e.apply.Unlock()
	if got := w.e.Status().Deviations; len(got) > 0 {
		t.Errorf("after the write deviate %+v", got)
	}
}

// TestAnAdoptedCommentIsAsWanted: an agent that takes over the entries of another
// finds no deviation, although comments have whole seconds.
func TestAnAdoptedCommentIsAsWanted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := pod("web", "10.1.0.5", "allow")
	policies := pol("allow", "tcp/443 *.example.org")
	w.apply([]policy.Pod{p}, policies)
	for _, name := range []string{"b.example.org", "c.example.org", "a.example.org", "d.example.org"} {
		w.clock.Pass(10 * time.Millisecond)
		w.answer(p, name, 60, "192.0.2.1")
	}
	w.restart()
	w.apply([]policy.Pod{p}, policies)
	before := w.e.repairs.Load()
	w.reconcileMembers()
	if n := w.e.repairs.Load() - before; n > 0 {
		t.Errorf("%d repairs although no other program has changed a set", n)
	}
}

// TestAnExchangedMemberIsReportedUntilItIsRepaired: it shows in no size, and the repair
// may have to wait.
func TestAnExchangedMemberIsReportedUntilItIsRepaired(t *testing.T) {
	t.Parallel()
	w, client := asksPeers(t)
	w.answer(client, "www.example.org", 600, "192.0.2.1")
	granted := xtables.GrantSetName(client.PodRef, https, iptables.IPv4)
	entries, err := w.sets.List(granted)
	fatal.If(t, err)
	before := w.dump()
	fatal.If(t, w.sets.Delete(granted, entries[0].Key()))
	other := entries[0].Key()
	other.Addr, other.Timeout = addr("192.0.2.9"), time.Hour
	fatal.If(t, w.sets.Add(granted, other))
	w.compareMembers()
	for range 2 {
		err := w.e.compare(context.Background(), true, false)
		if err == nil || !strings.Contains(err.Error(), granted) {
			t.Errorf("reported: %v", err)
		}
	}
	w.reconcile()
	diff.Error(t, before, w.dump(), "repaired")
	if err := w.e.compare(context.Background(), true, false); err != nil {
		t.Errorf("reported after the repair: %v", err)
	}
}
