package enforcer

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/dataplane/xtables"
	"github.com/namegate/namegate/enforcer/ruleset"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/kernel/nft/timed"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// otherPlane is a dataplane that cannot be read, and fails to remove its objects a few times.
type otherPlane struct {
	dataplane.Interface
	failures, removals int
}

func (o *otherPlane) Remove(context.Context) ([]netip.Addr, error) {
	if o.failures--; o.failures >= 0 {
		return nil, errors.New("refused")
	}
	o.removals++
	return nil, nil
}

// isLeft has the agent find the other dataplane.
func (o *otherPlane) isLeft(w *world) {
	w.e.k.Other = &Other{Left: func(context.Context) (bool, error) { return true, nil }, New: func(dataplane.Owner) dataplane.Interface { return o }, Unreadable: true}
	fatal.If(w.t, w.e.findOther(context.Background()))
}

// TestOtherDataplaneThatStays: objects of the other dataplane that cannot be removed once the
// earlier agent has gone are a deviation, and comparisons try again without a change of policies.
func TestOtherDataplaneThatStays(t *testing.T) {
	t.Parallel()
	w, p := web(t)
	ctx, other := context.Background(), &otherPlane{failures: 2}
	_, end := overlap(t, w, func() {
		other.isLeft(w)
		w.apply([]policy.Pod{p}, pol("allow", "tcp/443 www.example.org"))
	})
	if !w.awaits() || other.removals > 0 || other.failures != 2 {
		t.Fatalf("while the earlier agent is there: %+v", other)
	}
	w.reconcile()
	if other.removals > 0 || other.failures != 2 {
		t.Fatalf("a comparison while the earlier agent is there: %+v", other)
	}
	end()
	deviates := func(want bool, when string) {
		t.Helper()
		w.clock.Pass(2 * deviationGrace)
		is := false
		for _, d := range w.e.Deviations() {
			is = is || d.Object == "other dataplane" && d.Error != ""
		}
		diff.Equal(t, want, is, when, w.e.Deviations())
	}
	deviates(true, "after a removal that failed")
	if err := w.e.reconcile(ctx, false, true); err == nil || other.removals > 0 {
		t.Errorf("the second failure: %v, %+v", err, other)
	}
	deviates(true, "after the second one")
	fatal.If(t, w.e.reconcile(ctx, false, true))
	deviates(false, "after a removal")
	diff.Equal(t, 1, other.removals, other)
}

// TestChangesAlthoughTheOtherDataplaneStays: a change of policies comes into force although
// objects of the other dataplane cannot be removed, which is told and tried again.
func TestChangesAlthoughTheOtherDataplaneStays(t *testing.T) {
	t.Parallel()
	w, p := web(t)
	other := &otherPlane{failures: 3}
	_, end := overlap(t, w, func() {
		other.isLeft(w)
		w.apply([]policy.Pod{p}, pol("allow", "tcp/443 www.example.org"))
	})
	w.apply([]policy.Pod{p, pod("other", "10.1.0.6", "allow")}, pol("allow", "tcp/443 www.example.org"))
	if dump := w.inet.Dump(); !strings.Contains(dump, "selected4 { 10.1.0.6 }") || other.failures != 2 {
		t.Errorf("a coming pod is open, while the earlier agent is there:\n%s\n%+v", dump, other)
	}
	end()
	diff.MustEqual(t, 1, other.failures, "once the earlier agent is gone", other)
	w.apply([]policy.Pod{p, pod("other", "10.1.0.6", "allow"), pod("third", "10.1.0.7", "allow")}, pol("allow", "tcp/443 www.example.org"))
	if dump := w.inet.Dump(); !strings.Contains(dump, "selected4 { 10.1.0.7 }") || other.failures != 0 || !w.e.complete {
		t.Errorf("a coming pod is open:\n%s\n%+v", dump, other)
	}
	if w.clock.Pass(2 * deviationGrace); len(w.e.Deviations()) != 1 {
		t.Errorf("it is not told: %v", w.e.Deviations())
	}
	if w.reconcile(); other.removals != 1 || len(w.e.Deviations()) > 0 {
		t.Errorf("after a removal: %+v, %v", other, w.e.Deviations())
	}
}

// TestTheOtherDataplaneEndsBeforeAChange: once the tables decide without the other dataplane, the earlier agent's
// grants fail there before anything of a change is written.
func TestTheOtherDataplaneEndsBeforeAChange(t *testing.T) {
	t.Parallel()
	w, p := web(t)
	other := &otherPlane{}
	overlap(t, w, func() {
		other.isLeft(w)
		w.apply([]policy.Pod{p}, pol("allow", "tcp/443 www.example.org"))
	})
	w.prepare(w.compile([]policy.Pod{p, pod("other", "10.1.0.6", "allow")}, pol("allow", "tcp/443 www.example.org")))
	var before, after []string
	w.seams.before = func(step string) {
		if before = append(before, step); other.removals > 0 {
			after, before = append(after, step), before[:len(before)-1]
		}
	}
	w.commit()
	if len(before) > 1 || len(after) == 0 {
		t.Errorf("written before the other dataplane was removed: %q, and after: %q", before, after)
	}
}

// candidates tells whether the nft tables ask for candidates.
func (w *world) candidates() bool { return strings.Contains(w.inet.Dump(), " jump candidate") }

// TestASwitchKeepsDeadlines: what is taken over from the other dataplane ends when it would have ended there, and an
// entry that says no name is not taken over.
func TestASwitchKeepsDeadlines(t *testing.T) {
	t.Parallel()
	w, p := web(t)
	w.answer(p, "www.example.org", 600, "192.0.2.1")
	lifetime := w.left(p, https, "192.0.2.1") - DefaultHold
	unnamed := httpsEntry(addr("203.0.113.9"))
	unnamed.Timeout = time.Hour
	fatal.If(t, w.sets.Add(xtables.GrantSetName(p.PodRef, https, iptables.IPv4), unnamed))
	filter := xtables.Config{Sets: setSeam{w.sets, w.seams}, Chains: chainSeam{w.chains, w.seams}}
	w.plane = nftablesPlane
	_, end := overlap(t, w, func() {
		w.e.k.Other = &Other{Left: filter.Left, New: filter.New}
		fatal.If(t, w.e.findOther(context.Background()))
		w.apply([]policy.Pod{p}, pol("allow", "tcp/443 www.example.org"))
	})
	left := func() map[netip.Addr]time.Duration {
		out, set := map[netip.Addr]time.Duration{}, ruleset.GrantSet(dataplane.GrantSet{Pod: p.PodRef, Ports: https})
		fatal.If(t, w.e.k.Tables.Store.ListGrants([]string{set.Name}, func(_ string, part []timed.Entry) {
			for _, e := range part {
				out[e.Addr] = e.Timeout
			}
		}))
		return out
	}
	for _, when := range []string{"beside the first agent", "after it"} {
		if all := left(); len(all) != 1 || !near(all[addr("192.0.2.1")], lifetime.Truncate(time.Second)) {
			t.Errorf("%s these are open for: %v", when, all)
		}
		if when == "beside the first agent" {
			end()
		}
	}
	if w.expire(lifetime + 2*time.Second); len(left()) > 0 {
		t.Errorf("past their deadlines these are open for: %v", left())
	}
}

// TestChainsThatStayOpenNothing: chains of iptables that cannot be removed after a switch to
// nftables keep the policies of before. They open nothing, a change of policies comes into force
// beside them, and no later agent counts them in.
func TestChainsThatStayOpenNothing(t *testing.T) {
	t.Parallel()
	w, p := web(t)
	w.answer(p, "www.example.org", 600, "192.0.2.1")
	filter := xtables.Config{Sets: setSeam{w.sets, w.seams}, Chains: chainSeam{w.chains, w.seams}}
	w.plane = nftablesPlane
	begins := func() {
		w.e.k.Other = &Other{Left: filter.Left, New: filter.New}
		fatal.If(t, w.e.findOther(context.Background()))
	}
	_, end := overlap(t, w, func() {
		begins()
		w.apply([]policy.Pod{p}, pol("allow", "tcp/443 www.example.org *.example.net"))
		if !w.candidates() {
			t.Fatal("the chains of the earlier agent do not count while it is there")
		}
	})
	w.chains.Fail(errInjected)
	end()
	narrow := func(when string) {
		t.Helper()
		w.apply([]policy.Pod{p}, pol("allow", "tcp/443 *.example.net"))
		if w.candidates() || strings.Contains(w.inet.Dump(), "192.0.2.1") {
			t.Errorf("%s, what was withdrawn is open:\n%s", when, w.inet.Dump())
		}
		if !strings.Contains(w.chains.Dump(iptables.IPv4, "mangle"), xtables.ChainPrefix) {
			t.Fatalf("%s, the chains are gone", when)
		}
	}
	narrow("beside chains that stay")
	_, end = overlap(t, w, func() {
		begins()
		narrow("after another agent")
	})
	end()
	w.chains.Fail(nil)
	w.reconcile()
	if names := w.setNames(); len(names) > 0 || strings.Contains(w.chains.Dump(iptables.IPv4, "mangle"), xtables.ChainPrefix) {
		t.Errorf("left after a removal: %v\n%s", names, w.chains.Dump(iptables.IPv4, "mangle"))
	}
}
