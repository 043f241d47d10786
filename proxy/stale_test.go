package proxy

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/policytest"
)

const staled = "cache {\nserve_stale 1h\n}"

// TestStaleAnswerInAnOutage: with a TTL of 30 s, an extended error, grants, and
// until it is too old.
func TestStaleAnswerInAnOutage(t *testing.T) {
	for _, says := range []string{"error", "SERVFAIL"} {
		l := newCacheLab(t, map[string][]string{"www.example.org A": {"www.example.org. 100 IN A 192.0.2.1"}}, staled)
		q := newQuery("www.example.org", dns.TypeA)
		q.SetEdns0(1232, false)
		l.any("10.1.0.4", q)
		l.says("www.example.org A", says)
		l.upstreamAsked()
		for _, at := range []time.Duration{100 * time.Second, 10 * time.Minute, time.Hour + 99*time.Second} {
			l.at.Store(int64(at))
			for _, from := range []string{"10.1.0.4", "10.1.0.3", "10.1.0.6"} {
				r, hit := l.any(from, q)
				equal(t, says+": the answer", data(r.Answer), []string{"www.example.org. 30 A 192.0.2.1"})
				if hit || r.Rcode != dns.RcodeSuccess {
					t.Errorf("quick %v, %v", hit, r.Rcode)
				}
				if ede, ok := r.IsEdns0().Option[0].(*dns.EDNS0_EDE); !ok || ede.InfoCode != dns.ExtendedErrorCodeStaleAnswer {
					t.Errorf("options %v", r.IsEdns0().Option)
				}
				l.settle()
			}
			for _, i := range []int{1, 2} {
				if got := l.kernel.until(labPods[i].PodRef, mustAddr("192.0.2.1")).Sub(l.now()); got < 90*time.Second || got > 95*time.Second {
					t.Errorf("at %v open for %v to %s", at, got, labPods[i].Name)
				}
			}
			if rec := l.lines.all[0]; rec.Cache != audit.CacheStale || rec.Verdict != audit.Allowed {
				t.Errorf("logged %+v", rec)
			}
			diff.Equal(t, 1, l.upstreamAsked(), "at", at, "questions to the upstream")
		}
		l.at.Store(int64(time.Hour + 100*time.Second))
		wantCode(t, dns.RcodeServerFailure, l.reply("10.1.0.4", q), "too old")
	}
}

// TestUpstreamIsRarelyAskedInAnOutage: it is asked every 5 s, and a hit in between writes
// nothing more to the kernel.
func TestUpstreamIsRarelyAskedInAnOutage(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"www.example.org A": {"www.example.org. 100 IN A 192.0.2.1"}}, staled)
	q := newQuery("www.example.org", dns.TypeA)
	l.any("10.1.0.4", q)
	l.says("www.example.org A", "error")
	l.upstreamAsked()
	writes := l.kernel.writes
	for at := 100 * time.Second; at < 160*time.Second; at += 100 * time.Millisecond {
		l.at.Store(int64(at))
		l.any("10.1.0.4", q)
		l.settle()
		if open := l.kernel.until(labPods[2].PodRef, mustAddr("192.0.2.1")).Sub(l.now()); open < 90*time.Second || open > 95*time.Second {
			t.Fatalf("at %v open for %v", at, open)
		}
	}
	diff.Equal(t, 12, l.upstreamAsked(), "questions to the upstream in a minute")
	if n := l.kernel.writes - writes; n > 14 {
		t.Errorf("the kernel was written to %d times in a minute", n)
	}
}

// TestRecoveryEndsTheStaleAnswer: as soon as the upstream answers again.
func TestRecoveryEndsTheStaleAnswer(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"www.example.org A": {"www.example.org. 100 IN A 192.0.2.1"}}, staled)
	q := newQuery("www.example.org", dns.TypeA)
	l.any("10.1.0.4", q)
	l.says("www.example.org A", "error")
	l.pass(100 * time.Second)
	l.any("10.1.0.4", q)
	l.settle()
	l.says("www.example.org A", "www.example.org. 60 IN A 192.0.2.2")
	l.pass(4 * time.Second)
	l.gives("10.1.0.4", "www.example.org", dns.TypeA, "www.example.org. 30 A 192.0.2.1") // it rests
	l.pass(2 * time.Second)
	l.any("10.1.0.4", q) // no wait for the failed upstream
	l.settle()
	l.gives("10.1.0.4", "www.example.org", dns.TypeA, "www.example.org. 60 A 192.0.2.2")
	if l.kernel.until(labPods[2].PodRef, mustAddr("192.0.2.2")).IsZero() {
		t.Error("not open")
	}
}

// TestAnswerThatIsOverIsAskedForFirst: a well upstream's new answer is given.
func TestAnswerThatIsOverIsAskedForFirst(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"www.example.org A": {"www.example.org. 100 IN A 192.0.2.1"}}, staled)
	l.any("10.1.0.4", newQuery("www.example.org", dns.TypeA))
	l.says("www.example.org A", "www.example.org. 0 IN A 192.0.2.2") // and is not kept
	l.pass(100 * time.Second)
	l.gives("10.1.0.4", "www.example.org", dns.TypeA, "www.example.org. 0 A 192.0.2.2")
	l.settle()
	if n, _ := l.answers().cache.Usage(); n != 0 {
		t.Error("the old answer is still there")
	}
}

// TestStaleAnswerReplacesASlowUpstream: the stale answer comes after 1.8 s, and the
// late one is kept.
func TestStaleAnswerReplacesASlowUpstream(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"www.example.org A": {"www.example.org. 100 IN A 192.0.2.1"}}, staled)
	var waited []time.Duration
	l.s.after = func(d time.Duration, f func()) func() bool {
		waited = append(waited, d)
		f()
		return func() bool { return true }
	}
	l.any("10.1.0.4", newQuery("www.example.org", dns.TypeA))
	up := l.gate("")
	l.pass(100 * time.Second)
	for range 3 {
		l.gives("10.1.0.4", "www.example.org", dns.TypeA, "www.example.org. 30 A 192.0.2.1")
	}
	if !slices.Equal(waited, []time.Duration{staleWait, staleWait, staleWait}) || staleWait != 1800*time.Millisecond {
		t.Errorf("waited %v", waited)
	}
	up.reaches(t, 1)
	if n, _ := up.counts(); n != 1 {
		t.Errorf("the upstream was asked %d times", n)
	}
	l.says("www.example.org A", "www.example.org. 60 IN A 192.0.2.2")
	up.release()
	l.settle()
	l.gives("10.1.0.4", "www.example.org", dns.TypeA, "www.example.org. 60 A 192.0.2.2")
}

// TestStaleNXDOMAIN is one with an extended error of its own, and of its type alone.
func TestStaleNXDOMAIN(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"a.wild.test A": {"NXDOMAIN", soa + "20"}, "a.wild.test AAAA": {"error"}}, staled)
	q := newQuery("a.wild.test", dns.TypeA)
	q.SetEdns0(1232, false)
	l.any("10.1.0.2", q)
	l.says("a.wild.test A", "error")
	l.pass(20 * time.Second)
	r, _ := l.any("10.1.0.2", q)
	if r.Rcode != dns.RcodeNameError || r.Ns[0].Header().Ttl != 30 {
		t.Errorf("%v", r)
	}
	if ede, ok := r.IsEdns0().Option[0].(*dns.EDNS0_EDE); !ok || ede.InfoCode != dns.ExtendedErrorCodeStaleNXDOMAINAnswer {
		t.Errorf("options %v", r.IsEdns0().Option)
	}
	wantCode(t, dns.RcodeServerFailure, l.reply("10.1.0.2", newQuery("a.wild.test", dns.TypeAAAA)), "AAAA, which has no answer")
}

// TestFaultInARenewalIsCaught, and the entry is asked for again.
func TestFaultInARenewalIsCaught(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"www.example.org A": {"www.example.org. 100 IN A 192.0.2.1"}}, staled)
	q := newQuery("www.example.org", dns.TypeA)
	l.any("10.1.0.4", q)
	l.s.logger = slog.New(slog.DiscardHandler)
	l.use(l.config, faulty{})
	l.pass(100 * time.Second)
	l.gives("10.1.0.4", "www.example.org", dns.TypeA, "www.example.org. 30 A 192.0.2.1")
	l.settle()
	diff.Equal(t, 1, l.s.stats.Panics.Load(), "faults")
	l.use(l.config, l.up)
	l.pass(6 * time.Second)
	l.any("10.1.0.4", q)
	l.settle()
	l.gives("10.1.0.4", "www.example.org", dns.TypeA, "www.example.org. 100 A 192.0.2.1")
}

// TestRenewalAsksAgain after a fault that ended the call which it joined.
func TestRenewalAsksAgain(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"www.example.org A": {"www.example.org. 100 IN A 192.0.2.1"}}, staled)
	l.any("10.1.0.4", newQuery("www.example.org", dns.TypeA))
	l.says("www.example.org A", "www.example.org. 60 IN A 192.0.2.2")
	l.pass(100 * time.Second)
	a := wire.Query{Question: wire.Question{Name: policytest.Name("www.example.org"), Type: dns.TypeA, Class: dns.ClassINET}, Flags: wire.RD}
	c, first := l.s.calls.join(a, l.s.setup.Load().zones[0], new(unheard))
	if !first {
		t.Fatal("there is a call")
	}
	l.s.after = func(time.Duration, func()) func() bool { return nil } // the client waits
	go func() {
		for l.s.Stats().Coalesced == 0 {
			time.Sleep(time.Millisecond)
		}
		c.abandon()
	}()
	l.gives("10.1.0.4", "www.example.org", dns.TypeA, "www.example.org. 60 A 192.0.2.2")
}

// unheard is a waiter that no one waits for.
type unheard struct{ view wire.AnswerView }

func (u *unheard) answerView() *wire.AnswerView { return &u.view }
func (u *unheard) complete(outcome)             {}
