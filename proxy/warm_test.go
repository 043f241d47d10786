package proxy

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/warm"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

func TestWarmGrantsTheExactNames(t *testing.T) {
	l := newLab(t, labTable)
	snap := l.s.snapshot.Load()
	if err := l.s.Warm(context.Background(), snap.Views[:0]); err != nil || len(l.up.asked) != 0 {
		t.Errorf("nothing to do: %v, asked %v", err, l.up.asked)
	}
	fatal.If(t, l.s.Warm(context.Background(), snap.Views))
	got := l.granted()
	slices.Sort(got)
	equal(t, "grants", got, []string{
		"both one.test [192.0.2.10] tcp/80 +1m45s",
		"both one.test [192.0.2.10] udp/53 +1m45s",
		"quiet www.example.org [192.0.2.1 192.0.2.2] any +3m0s",
		"quiet www.example.org [2001:db8:9::1] any +2m0s",
		"strict www.example.org [192.0.2.1 192.0.2.2] any +3m0s",
		"strict www.example.org [2001:db8:9::1] any +2m0s",
		"web app.ingress.test [10.96.7.1] tcp/443 +2m0s",
		"web db.shop.svc.cluster.local [10.96.0.9] tcp/443 +1m30s",
		"web www.example.org [192.0.2.1 192.0.2.2] tcp/443 +3m0s",
		"web www.example.org [2001:db8:9::1] tcp/443 +2m0s",
	})
	if len(l.log.recs) != 0 || l.s.Stats().Queries != 0 {
		t.Errorf("logged %v, stats %+v", l.log.recs, l.s.Stats())
	}
}

func TestWarmAppliesTheGuardAndReportsFailures(t *testing.T) {
	l := newLab(t, map[string][]string{
		"www.example.org A":    {"www.example.org. 60 IN A 169.254.169.254"},
		"www.example.org AAAA": {"error"},
	})
	strict := l.s.snapshot.Load().ViewOf(labPods[2].PodRef)
	err := l.s.Warm(context.Background(), []*policy.View{strict})
	diff.Fails(t, "www.example.org for pod shop/strict", err)
	diff.Empty(t, l.granter.Grants(), "grants")
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for range 50 { // the places may be taken before the end is seen
		if err = l.s.Warm(over, []*policy.View{strict}); errors.Is(err, context.Canceled) {
			return
		}
	}
	t.Errorf("after the end: %v", err)
}

// TestWarmAsksNothingAgain: pods and views come and go, and the upstream is asked for a
// name once in the time of its answer; each pod is granted it all the same.
func TestWarmAsksNothingAgain(t *testing.T) {
	for _, c := range []struct {
		what   string
		a      []string // answers to A; there is no AAAA
		holds  time.Duration
		failed bool
	}{
		{"an answer", []string{"www.example.org. 20 IN A 192.0.2.1"}, 20 * time.Second, false},
		{"a name without addresses", []string{}, warm.Again, false},
		{"SERVFAIL", []string{"SERVFAIL"}, warm.Again, true},
		{"silence", []string{"error"}, warm.Again, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			l := newLab(t, map[string][]string{"www.example.org A": c.a, "www.example.org AAAA": {}})
			l.timers() // without a retry
			now := noon
			l.s.now = func() time.Time { return now }
			warm := func(asked int) {
				t.Helper()
				for _, pod := range []int{2, 1, 2} { // strict, quiet, and strict by another view
					l.s.Publish(compiled(t, labPolicies, labPods))
					if err := l.s.Warm(t.Context(), []*policy.View{l.s.snapshot.Load().ViewOf(labPods[pod].PodRef)}); (err != nil) != c.failed {
						t.Errorf("error %v", err)
					}
				}
				diff.Equal(t, asked, l.count("www.example.org A"), "times asked")
			}
			warm(1)
			now = noon.Add(c.holds - time.Second)
			warm(1)
			now = noon.Add(c.holds)
			warm(2)
			l.s.ForgetWarmUps()
			warm(3)
			if granted := l.granted(); !c.failed && len(c.a) > 0 && len(granted) != 7 { // open addresses are not granted again
				t.Errorf("granted %q", granted)
			}
			l.ask("10.1.0.4", "www.example.org", dns.TypeA)
			diff.Equal(t, 4, l.count("www.example.org A"), "times asked: a warm-up's answer is for no pod's own question")
		})
	}
}

// TestWarmTriesAgain: a name that failed is asked for again, after pauses that double up to
// a minute, until it is granted, or no view has it. One timer a pod waits.
func TestWarmTriesAgain(t *testing.T) {
	l := newLab(t, map[string][]string{"www.example.org A": {"SERVFAIL"}, "www.example.org AAAA": {}})
	timers, at := l.timers(), labClock{}
	l.s.now = at.now
	strict := l.s.snapshot.Load().ViewOf(labPods[2].PodRef)
	fails := func() {
		t.Helper()
		for range 2 { // a second warm-up has no timer of its own
			if err := l.s.Warm(t.Context(), []*policy.View{strict}); err == nil {
				t.Error("no error")
			}
		}
	}
	again := func(waited time.Duration, timersLeft int) {
		t.Helper()
		if timers.most != waited || len(timers.all) != 1 {
			t.Errorf("%d timers, waited %v, want %v", len(timers.all), timers.most, waited)
		}
		timers.most = 0
		at.pass(waited)
		if timers.end(); len(timers.all) != timersLeft {
			t.Errorf("after %v %d timers, want %d", waited, len(timers.all), timersLeft)
		}
	}
	fails()
	for _, seconds := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		again(seconds*time.Second, 1)
	}
	diff.Equal(t, 9, l.count("www.example.org A"), "times asked")
	l.up.mu.Lock()
	l.up.table["www.example.org A"] = []string{"www.example.org. 60 IN A 192.0.2.1"}
	l.up.mu.Unlock()
	again(time.Minute, 0)
	equal(t, "grants", l.granted(), []string{"strict www.example.org [192.0.2.1] any +6m3s"})

	l.up.mu.Lock()
	l.up.table["www.example.org A"] = []string{"SERVFAIL"}
	l.up.mu.Unlock()
	at.pass(time.Hour)
	fails()
	l.s.Publish(compiled(t, labPolicies, without("strict")))
	again(time.Second, 0)
	fails()
	if l.s.Ups.Stop(); len(timers.all) != 0 {
		t.Error("the end of the server leaves a timer")
	}
}

// TestRetriesOfPodsShareAFailure: the upstream is asked again once for all pods of a name.
func TestRetriesOfPodsShareAFailure(t *testing.T) {
	l := newLab(t, map[string][]string{"www.example.org A": {"SERVFAIL"}, "www.example.org AAAA": {}})
	timers, at, snap := l.timers(), labClock{}, l.s.snapshot.Load()
	l.s.now = at.now
	for asked := range 3 {
		diff.Equal(t, asked, l.count("www.example.org A"), "times asked")
		if asked == 0 {
			for _, pod := range labPods[1:3] {
				_ = l.s.Warm(t.Context(), []*policy.View{snap.ViewOf(pod.PodRef)})
			}
		} else {
			at.pass(warm.Pause << (asked - 1))
			timers.end()
		}
	}
}

// TestWarmAsksWhatHadNoTurn: names beyond those that are asked for at once have theirs
// when the first ones give up the time of the warm-up.
func TestWarmAsksWhatHadNoTurn(t *testing.T) {
	l := newLab(t, labTable)
	timers, gate := l.timers(), l.gate("dead.wild.test")
	names := slices.Repeat([]fqdn.Name{policytest.Name("dead.wild.test")}, warm.AtOnce)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	web := l.s.snapshot.Load().ViewOf(labPods[0].PodRef)
	opened, _ := web.ExactNames()
	diff.Is(t, context.DeadlineExceeded, l.s.WarmNames(ctx, web, append(names, opened...)))
	timers.end()
	equal(t, "grants", sorted(l.granted()), []string{
		"web app.ingress.test [10.96.7.1] tcp/443 +2m0s",
		"web db.shop.svc.cluster.local [10.96.0.9] tcp/443 +1m30s",
		"web www.example.org [192.0.2.1 192.0.2.2] tcp/443 +3m0s",
		"web www.example.org [2001:db8:9::1] tcp/443 +2m0s",
	})
	gate.release()
}

// count tells how often the upstream was asked.
func (l *lab) count(key string) (n int) {
	l.up.mu.Lock()
	defer l.up.mu.Unlock()
	for _, k := range l.up.asked {
		if k == key {
			n++
		}
	}
	return n
}

// TestWarmUpsOfPodsAreIndependent: a pod with more names without an answer than are asked
// for at once does not delay another pod's.
func TestWarmUpsOfPodsAreIndependent(t *testing.T) {
	l := newLab(t, labTable)
	defer l.gate("dead.wild.test").release()
	snap := l.s.snapshot.Load()
	dead := slices.Repeat([]fqdn.Name{policytest.Name("dead.wild.test")}, 4*warm.AtOnce)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = l.s.WarmNames(ctx, snap.ViewOf(labPods[0].PodRef), dead) }()
	fatal.If(t, l.s.Warm(t.Context(), []*policy.View{snap.ViewOf(labPods[2].PodRef)}))
	equal(t, "grants", sorted(l.granted()), []string{
		"strict www.example.org [192.0.2.1 192.0.2.2] any +3m0s", "strict www.example.org [2001:db8:9::1] any +2m0s",
	})
}

func sorted(lines []string) []string {
	slices.Sort(lines)
	return lines
}

// TestWarmAsksAgainAfterASuspension: cached warm-ups age like cached answers, whichever
// of the clocks stopped while the machine was suspended.
func TestWarmAsksAgainAfterASuspension(t *testing.T) {
	l := newLab(t, map[string][]string{"www.example.org A": {"www.example.org. 600 IN A 192.0.2.1"}, "www.example.org AAAA": {}})
	l.s.Publish(compiled(t, labPolicies, labPods))
	now, ahead := time.Now(), time.Duration(0)
	l.s.started, l.s.now = now, func() time.Time { return setClock(t, now, ahead) }
	for _, step := range []struct {
		ahead time.Duration
		asked int
	}{{0, 1}, {time.Second, 1}, {time.Hour, 2}, {time.Hour, 2}} {
		ahead = step.ahead
		l.s.Retime()
		fatal.If(t, l.s.Warm(t.Context(), []*policy.View{l.s.snapshot.Load().ViewOf(labPods[2].PodRef)}))
		diff.Equal(t, step.asked, l.count("www.example.org A"), ahead, "ahead: questions")
	}
}

// TestWarmUpsShareAnAnswer that no one of them changes.
func TestWarmUpsShareAnAnswer(t *testing.T) {
	l := newSocketLab(t, false)
	gate := make(chan struct{})
	l.asks(configWith(t), nil, startScript(t, func(q *dns.Msg, _ bool) [][]byte {
		<-gate
		return [][]byte{says(q, func(r *dns.Msg) { r.SetEdns0(1232, false) })}
	}))
	var warm sync.WaitGroup
	for _, pod := range []int{0, 1, 2} {
		v := l.s.snapshot.Load().ViewOf(labPods[pod].PodRef)
		warm.Go(func() { _ = l.s.WarmNames(t.Context(), v, []fqdn.Name{policytest.Name("a.example.org")}) })
	}
	fatal.Await(t, "a join of both types by two pods", func() bool { return l.s.Stats().Coalesced == 4 })
	close(gate)
	warm.Wait()
}
