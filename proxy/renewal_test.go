package proxy

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
)

const prefetched = "cache {\nprefetch 3 10s 20%\n}"

// TestPrefetchGrantsOnlyForThePodsThatAsked: before it expires, once, and granted to the
// pods that queried it, not to others nor to the pods of another answer.
func TestPrefetchGrantsOnlyForThePodsThatAsked(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"www.example.org A": {"www.example.org. 100 IN A 192.0.2.1"}}, prefetched)
	q := newQuery("www.example.org", dns.TypeA)
	ask := func(from string, at time.Duration) {
		t.Helper()
		l.at.Store(int64(at))
		l.any(from, q)
		l.settle()
	}
	ask("10.1.0.2", 0)             // asks first
	ask("10.1.0.3", time.Second)   // asks once
	ask("10.1.0.4", 2*time.Second) // asks often
	for at := 70 * time.Second; at < 80*time.Second; at += time.Second {
		if l.s.stats.Prefetches.Load() > 0 {
			t.Fatalf("renewed at %v, too early", at)
		}
		ask("10.1.0.4", at)
	}
	l.says("www.example.org A", "www.example.org. 100 IN A 192.0.2.2")
	l.upstreamAsked()
	writes := l.kernel.writes
	ask("10.1.0.4", 80*time.Second)
	if l.s.stats.Prefetches.Load() != 1 || l.upstreamAsked() != 1 {
		t.Fatalf("renewed %d times", l.s.stats.Prefetches.Load())
	}
	for i, want := range map[int]time.Duration{0: 240 * time.Second, 1: 240 * time.Second, 2: 240 * time.Second, 6: 0} {
		got := l.kernel.until(labPods[i].PodRef, mustAddr("192.0.2.2"))
		if want == 0 && !got.IsZero() || want != 0 && got.Sub(noon) != want {
			t.Errorf("%s has it until %v, want %v", labPods[i].Name, got.Sub(noon), want)
		}
	}
	// Three pods', and at 80 s the minimum TTL of the policy of the pod that asks.
	diff.Equal(t, 4, l.kernel.writes-writes, "writes")
	ask("10.1.0.4", 81*time.Second)
	l.gives("10.1.0.4", "www.example.org", dns.TypeA, "www.example.org. 99 A 192.0.2.2")
	if l.upstreamAsked() != 0 || l.s.stats.Prefetches.Load() != 1 {
		t.Error("renewed again")
	}
}

// gradual is a slow fake kernel, and counts the grants at a time.
type gradual struct {
	*kernelFake
	now, most atomic.Int64
}

func (g *gradual) GrantThen(grants []policy.Grant, then GrantCallback) {
	g.most.Store(max(g.most.Load(), g.now.Add(1)))
	time.AfterFunc(10*time.Millisecond, func() {
		g.now.Add(-1)
		g.kernelFake.GrantThen(grants, then)
	})
}

// TestPrefetchedAnswerIsGrantedPodByPod: the kernel's queue has room for clients.
func TestPrefetchedAnswerIsGrantedPodByPod(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"www.example.org A": {"www.example.org. 100 IN A 192.0.2.1"}}, prefetched)
	q := newQuery("www.example.org", dns.TypeA)
	for _, pod := range []string{"10.1.0.2", "10.1.0.3", "10.1.0.4"} {
		l.any(pod, q)
	}
	g := &gradual{kernelFake: l.kernel}
	l.s.granter = g
	l.says("www.example.org A", "www.example.org. 100 IN A 192.0.2.2")
	l.pass(85 * time.Second)
	for range 3 {
		l.any("10.1.0.6", q)
	}
	l.settle()
	if most := g.most.Load(); most != 1 || l.kernel.until(labPods[2].PodRef, mustAddr("192.0.2.2")).IsZero() {
		t.Errorf("%d at a time", most)
	}
}

func TestRegrantIsLoggedAsPrefetch(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"www.example.org A": {"www.example.org. 100 IN A 192.0.2.1"}}, prefetched)
	l.lines.keep = true
	l.at.Store(int64(85 * time.Second))
	q := newQuery("www.example.org", dns.TypeA)
	for i := range 6 {
		l.any("10.1.0.4", q)
		if l.settle(); i == 0 {
			l.pass(82 * time.Second)
		}
	}
	hows := map[audit.Cache]int{}
	for _, r := range l.lines.all {
		if hows[r.Cache]++; r.Cache == audit.CachePrefetch && (r.Pod != labPods[2].PodRef || r.Workload != "app=strict" || r.Address != labPods[2].IPs[0] || len(r.Answers) != 1 || len(r.Answers[0].Openings) != 1) {
			t.Errorf("logged %+v", r)
		}
	}
	diff.Error(t, map[audit.Cache]int{audit.CacheNone: 1, audit.CacheHit: 5, audit.CachePrefetch: 1}, hows, "logged")
}

// TestPrefetchIsNoHit: a prefetch that is granted to several pods counts as no
// client's question, and heats nothing.
func TestPrefetchIsNoHit(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"www.example.org A": {"www.example.org. 100 IN A 192.0.2.1"}}, prefetched)
	q := newQuery("www.example.org", dns.TypeA)
	asked := uint64(0)
	ask := func(from string) {
		l.any(from, q)
		l.settle()
		asked++
	}
	for _, from := range []string{"10.1.0.2", "10.1.0.3", "10.1.0.4"} {
		ask(from)
	}
	l.pass(85 * time.Second)
	for range 2 {
		ask("10.1.0.2")
	}
	started := l.answers().cache.Get(askFor(t, "www.example.org"))
	ask("10.1.0.5") // the third hit, of a pod that is granted nothing
	now := l.answers().cache.Get(askFor(t, "www.example.org"))
	if n := l.s.stats.Prefetches.Load(); n != 1 || now == started {
		t.Fatalf("%d prefetches", n)
	}
	if s := l.s.Stats(); s.CacheMisses != 1 || s.CacheHits != asked-1 {
		t.Errorf("%d hits and %d misses of %d questions", s.CacheHits, s.CacheMisses, asked)
	}
}

func TestColdAnswerIsNotRenewed(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"www.example.org A": {"www.example.org. 100 IN A 192.0.2.1"}}, prefetched)
	q := newQuery("www.example.org", dns.TypeA)
	for at := time.Duration(0); at < 100*time.Second; at += 11 * time.Second { // gaps of more than 10 s
		l.at.Store(int64(at))
		l.any("10.1.0.4", q)
		l.any("10.1.0.4", q)
	}
	diff.Equal(t, 0, l.s.stats.Prefetches.Load(), "renewals")
}

// TestFailedRenewalIsNotRetriedSoon: the cached answer is still used, and the upstream is not asked
// for a while.
func TestFailedRenewalIsNotRetriedSoon(t *testing.T) {
	for _, says := range []string{"error", "SERVFAIL", "REFUSED"} {
		l := newCacheLab(t, map[string][]string{"www.example.org A": {"www.example.org. 100 IN A 192.0.2.1"}}, prefetched)
		q := newQuery("www.example.org", dns.TypeA)
		for range 4 {
			l.any("10.1.0.4", q)
		}
		l.says("www.example.org A", says)
		l.upstreamAsked()
		asked := 0
		for at := 81 * time.Second; at < 96*time.Second; at += 500 * time.Millisecond {
			l.at.Store(int64(at))
			if r, _ := l.any("10.1.0.4", q); len(r.Answer) != 1 {
				t.Fatalf("%s: %v", says, r)
			}
			l.settle()
			asked += l.upstreamAsked()
		}
		diff.Equal(t, 3, asked, says, "questions to the upstream in 15 s")
	}
}

// TestRenewalsAreBounded: however many answers are over at once.
func TestRenewalsAreBounded(t *testing.T) {
	table := map[string][]string{}
	for i := range 2 * maxRenewals {
		table["n"+itoa(i)+".wild.test A"] = []string{"n" + itoa(i) + ".wild.test. 10 IN A 192.0.2.1"}
	}
	l := newCacheLab(t, table, "cache {\nserve_stale\n}")
	l.s.after = func(_ time.Duration, f func()) func() bool { f(); return func() bool { return true } }
	for i := range 2 * maxRenewals {
		l.any("10.1.0.6", newQuery("n"+itoa(i)+".wild.test", dns.TypeA))
	}
	up := l.gate("")
	l.pass(20 * time.Second)
	for i := range 2 * maxRenewals {
		if r, _ := l.any("10.1.0.6", newQuery("n"+itoa(i)+".wild.test", dns.TypeA)); len(r.Answer) != 1 {
			t.Fatalf("%d: %v", i, r)
		}
	}
	diff.Equal(t, maxRenewals, l.answers().renewals.inFlight(), "renewals under way")
	up.release()
	l.settle()
	if n, _ := up.counts(); n != maxRenewals {
		t.Errorf("the upstream was asked %d times", n)
	}
}
