package enforcer

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/enforcer/handover"
	"github.com/namegate/namegate/enforcer/intercept"
	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/granttest"
)

// overlap is a node on which a second agent has taken over while the first still
// answers; end ends the first, which is not awaited then.
func overlap(t testing.TB, w *world, bring func()) (first *Enforcer, end func()) {
	t.Helper()
	first = w.e
	serves := map[netip.Addr]bool{}
	for _, a := range first.Status().Serving {
		serves[a] = true
	}
	w.boot()
	w.e.predecessor = handover.NewPredecessor(func(a netip.Addr) bool { return serves[a] }, w.clock.Now)
	if _, err := w.e.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	if taken, err := first.intercept.TakenOver(context.Background()); err != nil || taken {
		t.Fatalf("taken over before the next agent's first snapshot: %v, %v", taken, err)
	}
	bring()
	if taken, err := first.intercept.TakenOver(context.Background()); err != nil || !taken {
		t.Fatalf("taken over after the next agent's first snapshot: %v, %v", taken, err)
	}
	return first, func() {
		t.Helper()
		if clear(serves); w.awaits() {
			t.Fatal("the first agent is gone, and awaited")
		}
	}
}

func (w *world) awaits() bool {
	w.t.Helper()
	there, err := w.e.AwaitPredecessor(context.Background())
	fatal.If(w.t, err)
	return there
}

// TestTwoAgentsOverlap: the first answers what it took and grants for it, and the
// second keeps to that when the first is gone.
func TestTwoAgentsOverlap(t *testing.T) {
	t.Parallel()
	w, p := web(t)
	w.answer(p, "www.example.org", 60, "192.0.2.1")
	late := w.grants(w.snap, p.PodRef, "www.example.org", 600, "192.0.2.1 192.0.2.2")
	first, end := overlap(t, w, func() { w.apply([]policy.Pod{p}, pol("allow", "tcp/443 www.example.org")) })
	var serving, dialled netip.Addr
	for dialled, serving = range first.Status().Serving {
		if serving.Is4() {
			break
		}
	}
	fatal.If(t, granttest.Grant(context.Background(), first.grants, late))
	givenBack := "giveback4 { " + serving.String() + " : " + dialled.String() + " }"
	if !w.awaits() || !w.dials("10.1.0.5", serving.String(), 53) || !strings.Contains(w.inet.Dump(), givenBack) {
		t.Errorf("while the first agent answers, its %s is closed, or nothing it says given back:\n%s", serving, w.inet.Dump())
	}
	w.reconcile()
	if !strings.Contains(w.inet.Dump(), givenBack) {
		t.Error("a look at the kernel ends what belongs to the first agent")
	}
	end()
	if w.dials("10.1.0.5", serving.String(), 53) || strings.Contains(w.inet.Dump(), serving.String()) {
		t.Errorf("%s of the first agent is still open", serving)
	}
	if slices.Contains(nodeAddrs(t, w), serving) {
		t.Errorf("%s stays on the node", serving)
	}
	if !w.e.grants.Covered(late) {
		t.Error("what the first agent granted at last is not known")
	}
	w.expire(200 * time.Second)
	if w.left(p, https, "192.0.2.1") == 0 || w.left(p, https, "192.0.2.2") == 0 {
		t.Error("what the first agent granted at last ends too early")
	}
	w.expire(600 * time.Second)
	if w.left(p, https, "192.0.2.1") != 0 || w.left(p, https, "192.0.2.2") != 0 {
		t.Error("what the first agent granted at last does not end")
	}
}

// TestGrantsOfAnOlderPolicyAreRemoved with the agent that granted it, also on a node with a pod that has no object.
func TestGrantsOfAnOlderPolicyAreRemoved(t *testing.T) {
	t.Parallel()
	w, p := web(t)
	w.links.SetHome(addr("10.1.0.6"), link.Home{Iface: "veth6"})
	w.apply([]policy.Pod{p, pod("db", "10.1.0.6", "allow")}, pol("allow", "tcp/443 www.example.org"))
	old := w.grants(w.snap, p.PodRef, "www.example.org", 600, "192.0.2.1")
	first, end := overlap(t, w, func() { w.apply([]policy.Pod{p}, pol("allow", "tcp/443 *.example.net")) })
	fatal.If(t, granttest.Grant(context.Background(), first.grants, old))
	open := w.track("10.1.0.5:1001", "192.0.2.1:443")
	end()
	w.preparesAgain()
	if w.admitted(open) {
		t.Error("a connection stays admitted that no policy allows")
	}
	if w.left(p, https, "192.0.2.1") != 0 {
		t.Error("an address stays open that no policy allows")
	}
}

// preparesAgain does what the agent asked for.
func (w *world) preparesAgain() {
	w.t.Helper()
	if !w.reprepare {
		w.t.Error("nothing is to be prepared again")
	}
	w.reprepare = false
	fatal.If(w.t, w.rollOut(w.snap))
}

// TestLastGrantsAreDenied: the first agent's last answer for a name that the next agent's policies deny, by a pattern
// of theirs, opens nothing once that is gone, also where that is found out while they are prepared.
func TestLastGrantsAreDenied(t *testing.T) {
	t.Parallel()
	for when, prepares := range map[string]bool{"in force": false, "prepared": true} {
		w, p := newWorld(t), pod("web", "10.1.0.5", "allow")
		w.apply([]policy.Pod{p}, pol("allow", "tcp/443 *.test"))
		last := w.grants(w.snap, p.PodRef, "a.test", 600, "192.0.2.1")
		next := denying(t, []int{443}, []policy.Pod{p}, pol("allow", "tcp/443 *.test"))
		first, end := overlap(t, w, func() { fatal.If(t, w.rollOut(next)) })
		fatal.If(t, granttest.Grant(context.Background(), first.grants, last))
		open := w.track("10.1.0.5:1001", "192.0.2.1:443")
		if prepares {
			w.prepare(next)
		}
		end()
		if prepares {
			w.commit()
		}
		w.preparesAgain()
		if w.held(p, next.Views[0].Rules.Admin[0].ID) != 1 || w.admitted(open) {
			t.Error(when, "an address of a denied name is open")
		}
	}
}

// TestPredecessorBetweenPrepareAndCommit takes nothing away of what is prepared: neither
// the judgement of coming pods nor what the last agent granted by the coming snapshot.
func TestPredecessorBetweenPrepareAndCommit(t *testing.T) {
	t.Parallel()
	w, client := asksPeers(t)
	first, end := overlap(t, w, func() { w.apply([]policy.Pod{client}, pol("allow", "tcp/443 www.example.org")) })
	young := pod("young", "10.1.0.3", "allow", "np")
	next := w.compile([]policy.Pod{client, young}, pol("allow", "tcp/443 www.example.org mail.test"))
	for _, e := range []*Enforcer{first, w.e} {
		fatal.If(t, e.Prepare(context.Background(), next))
	}
	fatal.If(t, granttest.Grant(context.Background(), first.grants, w.grants(next, client.PodRef, "mail.test", 60, "192.0.2.3")))
	check := func(when string) {
		t.Helper()
		p := &packet{Src: addr("10.1.0.3"), Dst: addr("10.2.0.1"), Protocol: uint8(policy.TCP), DstPort: 5432, Iface: "veth3"}
		if !w.passes(p) || p.Conn&DefaultMark == 0 {
			t.Errorf("%s: what a coming pod opens to a peer is not admitted", when)
		}
		if !w.dials("10.1.0.5", "192.0.2.3", 443) {
			t.Errorf("%s: what the last agent granted by the coming snapshot is closed", when)
		}
	}
	check("prepared")
	end()
	check("departed")
	w.commit()
	check("committed")
}

// TestAnAgentThatHangsKeepsNothingOpen for longer than its successor waits.
func TestAnAgentThatHangsKeepsNothingOpen(t *testing.T) {
	t.Parallel()
	w, p := web(t)
	_, end := overlap(t, w, func() { w.apply([]policy.Pod{p}, pol("allow", "tcp/443 www.example.org")) })
	defer end()
	w.clock.Pass(30*time.Second - time.Second)
	if !w.awaits() {
		t.Error("not awaited for its time")
	}
	w.clock.Pass(2 * time.Second)
	if w.awaits() {
		t.Error("awaited for ever")
	}
}

// TestPredecessorWaitsForTheFirstSnapshot: until then nothing is known of what is allowed.
func TestPredecessorWaitsForTheFirstSnapshot(t *testing.T) {
	t.Parallel()
	w, p := web(t)
	w.answer(p, "www.example.org", 60, "192.0.2.1")
	_, end := overlap(t, w, func() {
		if !w.awaits() {
			t.Error("gone before the first snapshot")
		}
		w.apply([]policy.Pod{p}, pol("allow", "tcp/443 www.example.org"))
	})
	end()
	if w.left(p, https, "192.0.2.1") == 0 {
		t.Error("what is allowed is closed")
	}
}

// TestEachResolverStaysIntercepted at every step from one agent to the next, those
// of Services included.
func TestEachResolverStaysIntercepted(t *testing.T) {
	t.Parallel()
	w, p := web(t)
	service := intercept.Network{Resolvers: addrs("10.96.0.10"), Backends: []netip.AddrPort{addrPort("10.2.0.9:53")}, PodRanges: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}}
	w.learns(service)
	_, end := overlap(t, w, func() {
		w.seams.before = func(step string) {
			dump := w.inet.Dump()
			for _, want := range []string{"intercept4 { 10.96.0.10 : ", "podrange4 { 10.1.0.0/24 }", "intercept4 { 192.0.2.53 : "} {
				diff.Has(t, want, dump, "before", step)
			}
			if !w.dials("10.1.0.5", "10.96.0.10", 53) {
				t.Errorf("before %s: the Service is closed", step)
			}
		}
		w.learns(service)
		w.apply([]policy.Pod{p}, pol("allow", "tcp/443 www.example.org"))
		w.seams.before = nil
	})
	end()
}

// TestAComparisonLeavesThePredecessorsGrants: while two agents grant, the second does not move
// a deadline back that the first has moved.
func TestAComparisonLeavesThePredecessorsGrants(t *testing.T) {
	t.Parallel()
	w, p := web(t)
	w.answer(p, "www.example.org", 60, "192.0.2.1")
	late := w.grants(w.snap, p.PodRef, "www.example.org", 600, "192.0.2.1")
	first, end := overlap(t, w, func() { w.apply([]policy.Pod{p}, pol("allow", "tcp/443 www.example.org")) })
	fatal.If(t, granttest.Grant(context.Background(), first.grants, late))
	before := w.e.repairs.Load()
	w.reconcileMembers()
	end()
	if !w.e.grants.Covered(late) {
		t.Error("what the first agent granted at last is not known")
	}
	w.reconcileMembers()
	if n := w.e.repairs.Load() - before; n > 0 {
		t.Errorf("%d repairs although no other program has changed a set", n)
	}
	w.expire(200 * time.Second)
	if w.left(p, https, "192.0.2.1") == 0 {
		t.Error("what the first agent granted at last ends too early")
	}
}
