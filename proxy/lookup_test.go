package proxy

import (
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/testkit/diff"
)

func TestCachedTTLsCountDown(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"www.example.org A": {"www.example.org. 60 IN CNAME cdn.test.", "cdn.test. 40 IN A 192.0.2.1"}})
	for _, tt := range []struct {
		at    time.Duration
		ttls  [2]string
		asked int
	}{
		{0, [2]string{"60", "40"}, 1},
		{0, [2]string{"60", "40"}, 0},
		{time.Millisecond, [2]string{"59", "39"}, 0}, // TTLs are rounded down
		{time.Second, [2]string{"59", "39"}, 0},
		{1001 * time.Millisecond, [2]string{"58", "38"}, 0},
		{39 * time.Second, [2]string{"21", "1"}, 0},
		{40*time.Second - 1, [2]string{"20", "0"}, 0},
		{40 * time.Second, [2]string{"60", "40"}, 1},
	} {
		for _, from := range []string{"10.1.0.2", "10.1.0.2", "10.1.0.6", "10.1.0.6", "10.1.0.3"} {
			l.at.Store(int64(tt.at))
			l.gives(from, "www.example.org", dns.TypeA, "www.example.org. "+tt.ttls[0]+" CNAME cdn.test.", "cdn.test. "+tt.ttls[1]+" A 192.0.2.1")
		}
		diff.Equal(t, tt.asked, l.upstreamAsked(), "at", tt.at, "questions to the upstream")
	}
}

// TestDeadlineIsCountedFromTheUpstreamsAnswer: as long as no bound of the policy
// takes effect a hit opens nothing for longer, and writes nothing.
func TestDeadlineIsCountedFromTheUpstreamsAnswer(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"one.test A": {"one.test. 60 IN A 192.0.2.1"}})
	web := labPods[5].PodRef // both: 10 s to 100 s, grace 5 s
	for at := time.Duration(0); at < 60*time.Second; at += 700 * time.Millisecond {
		l.at.Store(int64(at))
		l.any("10.1.0.7", newQuery("one.test", dns.TypeA))
		left := 60*time.Second - at
		got := l.kernel.until(web, mustAddr("192.0.2.1")).Sub(noon)
		switch {
		case left >= 10*time.Second && got != 65*time.Second:
			t.Fatalf("at %v open until %v, not 60 s and the grace", at, got)
		case got-at < 15*time.Second-time.Second:
			t.Fatalf("at %v open for %v, less than the policy's least", at, got-at)
		case left < 10*time.Second && got-at > 16*time.Second:
			t.Fatalf("at %v open for %v, more than the policy's least and a second", at, got-at)
		}
		if at < 50*time.Second && l.kernel.writes != 1 {
			t.Fatalf("at %v the kernel was written to %d times", at, l.kernel.writes)
		}
	}
	diff.Equal(t, 1, l.upstreamAsked(), "questions to the upstream")
}

// TestMaximumOfThePolicyBoundsEachHit: told is no more than is open.
func TestMaximumOfThePolicyBoundsEachHit(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"one.test A": {"one.test. 1000 IN A 192.0.2.1"}})
	for at := time.Duration(0); at < 990*time.Second; at += 31*time.Second + 300*time.Millisecond {
		l.at.Store(int64(at))
		r, _ := l.any("10.1.0.7", newQuery("one.test", dns.TypeA))
		told := time.Duration(r.Answer[0].Header().Ttl) * time.Second
		diff.Equal(t, min(100*time.Second, 1000*time.Second-(at+time.Second-1)/time.Second*time.Second), told, "the TTL told at", at)
		if open := l.kernel.until(labPods[5].PodRef, mustAddr("192.0.2.1")).Sub(l.now()); open < told || open > 106*time.Second {
			t.Errorf("at %v open for %v, told %v", at, open, told)
		}
	}
}

func TestHitGrantsOnlyForThePodThatAsks(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"www.example.org A": {"www.example.org. 60 IN A 192.0.2.1"}})
	a := mustAddr("192.0.2.1")
	l.any("10.1.0.6", newQuery("www.example.org", dns.TypeA)) // unselected
	for i, pod := range labPods[:3] {
		if !l.kernel.until(pod.PodRef, a).IsZero() {
			t.Errorf("%s has it before it asked", pod.Name)
		}
		if r, hit := l.any(pod.IPs[0].String(), newQuery("www.example.org", dns.TypeA)); hit || len(r.Answer) != 1 {
			t.Errorf("%s: %v, quick %v", pod.Name, r.Answer, hit)
		}
		if got := l.lines.all[0]; got.Verdict != audit.Allowed || got.Cache != audit.CacheHit || len(got.Answers[0].Openings) != 1 {
			t.Errorf("logged %+v", got)
		}
		if l.kernel.until(pod.PodRef, a).IsZero() || l.kernel.writes != i+1 {
			t.Errorf("%s has nothing, or %d writes", pod.Name, l.kernel.writes)
		}
		if _, hit := l.any(pod.IPs[0].String(), newQuery("www.example.org", dns.TypeA)); !hit {
			t.Errorf("%s is decided anew again", pod.Name)
		}
	}
	l.gives("10.1.0.5", "www.example.org", dns.TypeA, "www.example.org. 60 A 192.0.2.1")
	if !l.kernel.until(labPods[3].PodRef, a).IsZero() || l.upstreamAsked() != 1 {
		t.Error("an audited pod was granted, or the upstream asked again")
	}
}

func TestTTLsOfRepliesAreBounded(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"a.wild.test A": {"a.wild.test. 2 IN A 192.0.2.1"}, "b.wild.test A": {"b.wild.test. 9000 IN A 192.0.2.2"},
		"c.wild.test A": {"NXDOMAIN", soa + "3"}}, "cache 2h", "ttl 10s 20m")
	l.gives("10.1.0.2", "a.wild.test", dns.TypeA, "a.wild.test. 10 A 192.0.2.1")
	l.gives("10.1.0.2", "b.wild.test", dns.TypeA, "b.wild.test. 1200 A 192.0.2.2")
	if r, _ := l.any("10.1.0.2", newQuery("c.wild.test", dns.TypeA)); r.Ns[0].Header().Ttl != 3 {
		t.Errorf("a denial is told for %d s", r.Ns[0].Header().Ttl)
	}
	l.pass(9 * time.Second)
	l.gives("10.1.0.2", "a.wild.test", dns.TypeA, "a.wild.test. 1 A 192.0.2.1")
	diff.Equal(t, 20*time.Minute+time.Minute, l.kernel.until(labPods[0].PodRef, mustAddr("192.0.2.2")).Sub(noon), "open for; told 20 min, grace 1 min")
}

// TestClockThatWentBack: answers from the future are not used, and nothing breaks.
func TestClockThatWentBack(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"www.example.org A": {"www.example.org. 60 IN A 192.0.2.1"}})
	l.pass(time.Hour)
	for _, back := range []time.Duration{0, 30 * time.Second, -time.Second, -29 * time.Second, -2 * time.Hour, time.Hour} {
		l.pass(back)
		for range 3 {
			r, _ := l.any("10.1.0.2", newQuery("www.example.org", dns.TypeA))
			if len(r.Answer) != 1 || r.Answer[0].Header().Ttl > 60 {
				t.Fatalf("after %v: %v", back, r)
			}
			told := l.now().Add(time.Duration(r.Answer[0].Header().Ttl) * time.Second)
			if l.kernel.until(labPods[0].PodRef, mustAddr("192.0.2.1")).Before(told) {
				t.Fatalf("after %v told for longer than open", back)
			}
		}
	}
}
