package enforcer

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/dataplane/xtables"
	"github.com/namegate/namegate/enforcer/handover"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/granttest"
)

func TestRestartTakesGrantsOver(t *testing.T) {
	t.Parallel()
	w, p := web(t)
	allow := pol("allow", "tcp/443 www.example.org *.example.net")
	w.answer(p, "www.example.org", 60, "192.0.2.1 2001:db8::1")
	w.answer(p, "a.example.net", 600, "192.0.2.1")
	w.answer(p, "b.example.net", 600, "192.0.2.2")
	enforced := w.chains.Dump(4, "mangle") + w.chains.Dump(4, "security")
	w.clock.Pass(30 * time.Second)
	w.restart()
	diff.Error(t, enforced, w.chains.Dump(4, "mangle")+w.chains.Dump(4, "security"), "a start before any snapshot changed what is enforced")
	if !w.dials("10.1.0.5", "192.0.2.1", 443) || w.dials("10.1.0.5", "192.0.2.9", 443) {
		t.Error("enforcement is not as the last agent left it")
	}
	w.seams.forget(0, false)
	w.apply([]policy.Pod{p}, allow)
	for _, a := range []struct {
		addr string
		left time.Duration
	}{{"192.0.2.1", 630 * time.Second}, {"192.0.2.2", 630 * time.Second}, {"2001:db8::1", 90 * time.Second}} {
		if got := w.left(p, https, a.addr); !near(got, a.left) {
			t.Errorf("%s has %v after the restart, want %v and the hold", a.addr, got, a.left)
		}
	}
	diff.Error(t, enforced, w.chains.Dump(4, "mangle")+w.chains.Dump(4, "security"), "the same snapshot changed the chains")
	for _, step := range w.seams.written() {
		if strings.HasPrefix(step, "add NG4-"+dataplane.PodID(p.PodRef)) || strings.HasPrefix(step, "destroy") || strings.HasPrefix(step, "mark") {
			t.Errorf("the same snapshot needs no %s", step)
		}
	}
	diff.Equal(t, 3, w.e.Status().Grants, "grants taken over")
	// A second later at most: deadlines are written in whole seconds.
	w.expire(90*time.Second + time.Second)
	if w.left(p, https, "2001:db8::1") != 0 || w.left(p, https, "192.0.2.1") == 0 {
		t.Error("taken over grants must end at their own deadlines")
	}
	w.expire(540 * time.Second)
	diff.Equal(t, 0, w.e.Status().Grants, "grants after all deadlines")
}

// TestAnotherHoldMovesNoDeadline: an agent that keeps grants for another time after their deadlines takes these over as
// they are, also from an agent that only took them over itself.
func TestAnotherHoldMovesNoDeadline(t *testing.T) {
	t.Parallel()
	eachPlane(t, func(t *testing.T, plane string) {
		w := newWorldOn(t, plane)
		p := pod("web", "10.1.0.5 2001:db8:1::5", "allow")
		cluster := clusterPolicy(t, "zone", "{tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Accept, matches: [{name: b.test}]}]}")
		start := func() {
			in := compile.Input{Pods: []policy.Pod{p}, Policies: []*v1alpha1.FQDNNetworkPolicy{pol("allow", "tcp/443 a.test")}, ClusterPolicies: []*v1alpha1.ClusterFQDNNetworkPolicy{cluster}}
			fatal.If(t, w.rollOut(w.compiler.Compile(in)))
		}
		start()
		w.answer(p, "a.test", 600, "192.0.2.1 2001:db8::1")
		byRule := w.grants(w.snap, p.PodRef, "b.test", 600, "192.0.2.2 2001:db8::2")
		byRule[0].Rule = w.snap.Views[0].Rules.Admin[0].ID
		fatal.If(t, granttest.Grant(context.Background(), w.e.grants, byRule))
		want := w.e.grants.ListGrants(p.PodRef)
		diff.Equal(t, 4, len(want), "grants")
		for _, hold := range []time.Duration{0, 90 * time.Second, 90 * time.Second, 20 * time.Minute, DefaultHold} {
			w.clock.Pass(10 * time.Second)
			w.cfg.Hold = hold
			w.restart()
			start()
			got := w.e.grants.ListGrants(p.PodRef)
			diff.Equal(t, len(want), len(got), "grants with a hold of", hold)
			for i := range min(len(want), len(got)) {
				if moved := got[i].Until.Sub(want[i].Until); moved.Abs() > 2*time.Second {
					t.Errorf("with a hold of %v the deadline of %s is %v later", hold, got[i].Addr, moved)
				}
			}
			if found, err := w.e.grants.Verify([]policy.RuleID{byRule[0].Rule}); err != nil || len(found) > 0 {
				t.Errorf("with a hold of %v deviate %v, %v", hold, found, err)
			}
		}
	})
}

func TestRestartRecoversGrants(t *testing.T) {
	t.Parallel()
	w, p := web(t)
	w.answer(p, "www.example.org", 60, "192.0.2.1")
	w.restart()
	w.apply([]policy.Pod{p}, pol("allow", "tcp/443 www.example.org *.example.net"))
	w.seams.forget(0, false)
	// A cached answer of the same deadline.
	w.answer(p, "www.example.org", 60, "192.0.2.1")
	if got := w.seams.writes("add"); len(got) != 0 {
		t.Errorf("written again: %v", got)
	}
}

func TestRestartRemovesDisallowedGrants(t *testing.T) {
	t.Parallel()
	w, p := web(t)
	w.answer(p, "www.example.org", 60, "192.0.2.1")
	w.answer(p, "a.example.net", 60, "192.0.2.2")
	set := xtables.GrantSetName(p.PodRef, https, iptables.IPv4)
	for _, comment := range []string{"", "by hand", "www.example.com until=1800000000"} {
		entry := httpsEntry(netip.AddrFrom4([4]byte{192, 0, 2, byte(100 + len(comment))}))
		entry.Comment = comment
		fatal.If(t, w.sets.Add(set, entry))
	}
	first, second := flow("10.1.0.5:1001", "192.0.2.1:443"), flow("10.1.0.5:1002", "192.0.2.2:443")
	judged := flow("10.1.0.5:1003", "192.0.2.2:443")
	judged.Mark = 0
	w.flows.Track(first)
	w.flows.Track(second)
	w.flows.Track(judged)
	w.restart()
	w.apply([]policy.Pod{p}, pol("allow", "tcp/443 *.example.net"))
	if es := w.entries(p, https, iptables.IPv4); len(es) != 1 || es[0].Addr != addr("192.0.2.2") {
		t.Errorf("entries %v, want the one that is still allowed", es)
	}
	if w.admitted(first) || !w.admitted(second) {
		t.Error("the connection of the name that went must be cut, the other not")
	}
	if w.mark(judged)&DefaultMark != 0 {
		t.Error("a connection that was judged before is admitted by the restart")
	}
}

func TestRestartRemovesLeftovers(t *testing.T) {
	t.Parallel()
	w, p := web(t)
	gone := pod("gone", "10.1.0.6", "allow")
	allow := pol("allow", "tcp/443 www.example.org *.example.net")
	w.apply([]policy.Pod{p, gone}, allow)
	for _, s := range []string{"NG4-0123456789ab-01234567", "NG6-old"} {
		fatal.If(t, w.sets.Ensure(ipset.Set{Name: s, Type: ipset.HashIP, IPv6: s[2] == '6'}))
	}
	fatal.If(t, w.sets.Ensure(ipset.Set{Name: "others", Type: ipset.HashIP}))
	tx := iptables.NewTransaction(4, "mangle")
	tx.Replace("NAMEGATE-OLD", "-m set --match-set NG4-0123456789ab-01234567 dst -j RETURN")
	fatal.If(t, w.chains.Restore(context.Background(), tx))
	w.restart()
	w.apply([]policy.Pod{p}, allow)
	names := w.setNames()
	want := []string{xtables.GrantSetName(p.PodRef, https, 4), xtables.GrantSetName(p.PodRef, https, 6), "others"}
	for _, s := range xtables.StaticSets() {
		want = append(want, s.Name)
	}
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("sets %v, want %v", names, want)
	}
	if strings.Contains(w.chains.Dump(4, "mangle"), "NAMEGATE-OLD") {
		t.Error("a chain that nobody wants is left")
	}
}

func TestSetReferencedByAnotherProgramStays(t *testing.T) {
	t.Parallel()
	w := newNode(t)
	fatal.If(t, w.sets.Ensure(ipset.Set{Name: "NG4-old", Type: ipset.HashIP}))
	tx := iptables.NewTransaction(4, "filter")
	tx.Insert("FORWARD", "-m set --match-set NG4-old dst -j ACCEPT")
	fatal.If(t, w.chains.Restore(context.Background(), tx))
	w.restart()
	w.apply(nil)
	tx = iptables.NewTransaction(4, "filter")
	tx.Remove("FORWARD", "-m set --match-set NG4-old dst -j ACCEPT")
	fatal.If(t, w.chains.Restore(context.Background(), tx))
	w.apply(nil)
	if names := w.setNames(); slices.Contains(names, "NG4-old") {
		t.Error("the set stays although nothing asks it any more")
	}
}

func TestStartTwiceLeavesTheFirstServing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.e.Status().Serving
	w.boot()
	w.e.predecessor = handover.NewPredecessor(func(a netip.Addr) bool { return slices.Contains(slices.Collect(maps.Values(first)), a) }, w.clock.Now)
	second, err := w.e.Start(context.Background())
	fatal.If(t, err)
	diff.Equal(t, 4, len(second), "an address for each of two resolvers and two endpoints", second)
	all, _ := w.links.Addrs()
	for _, a := range first {
		if slices.Contains(second, a) || !slices.Contains(all, a) {
			t.Errorf("%s of the first generation: taken again or gone", a)
		}
	}
}

// failsToCommit prepares a snapshot, and asserts that it is not committed while chains are refused.
func (w *world) failsToCommit(s *policy.Snapshot) {
	w.t.Helper()
	w.prepare(s)
	w.chains.Fail(errInjected)
	defer w.chains.Fail(nil)
	if err := w.e.Commit(context.Background()); err == nil {
		w.t.Fatal("no error")
	}
}

func TestFailedFirstCommitKeepsTheRecoveredState(t *testing.T) {
	t.Parallel()
	w, p := web(t)
	w.answer(p, "www.example.org", 60, "192.0.2.1")
	judged := w.unadmitted("10.1.0.5:1003", "192.0.2.1:443")
	w.restart()
	s := w.compile([]policy.Pod{p}, pol("allow", "tcp/443 www.example.org", "tcp/8443-8444 www.example.org")) // so that chains change
	w.failsToCommit(s)
	fatal.If(t, w.rollOut(s))
	if w.mark(judged)&DefaultMark != 0 {
		t.Error("a connection that was judged before is admitted by the retry")
	}
}

// TestAdmissionsLastAsLongAsTheRules: a pod that no policy selects any more after a restart keeps its connections
// while the last rules are in force, which deny without an admission.
func TestAdmissionsLastAsLongAsTheRules(t *testing.T) {
	t.Parallel()
	w, p := web(t)
	w.answer(p, "www.example.org", 60, "192.0.2.1")
	f := w.track("10.1.0.5:1003", "192.0.2.1:443")
	w.restart()
	s := w.compile([]policy.Pod{pod("web", "10.1.0.5")}, pol("allow", "tcp/443 www.example.org"))
	w.failsToCommit(s)
	if !w.admitted(f) {
		t.Error("the connection is cut by the rules of the last agent")
	}
	fatal.If(t, w.rollOut(s))
	if w.admitted(f) {
		t.Error("the next pod with the address inherits the connection")
	}
}

// A pod that was only audited has a chain and was never judged: what the next
// agent's policy allows of its connections must stay.
func TestRestartJudgesPodsThatWereOnlyAudited(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := pod("web", "10.1.0.5", "allow")
	audit := pol("allow", "tcp/443 www.example.org")
	audit.Spec.Enforcement = v1alpha1.EnforcementAudit
	w.apply([]policy.Pod{web}, audit)
	f := w.unadmitted("10.1.0.5:1001", "192.0.2.53:53")
	w.restart()
	w.apply([]policy.Pod{web}, pol("allow", "tcp/443 www.example.org"))
	if w.mark(f)&DefaultMark == 0 {
		t.Error("an allowed connection is cut")
	}
}
