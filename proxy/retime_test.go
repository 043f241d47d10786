package proxy

import (
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// setClock returns a time as the runtime reads it from a clock that was set by ahead.
func setClock(t testing.TB, now time.Time, by time.Duration) time.Time {
	t.Helper()
	own := (*int64)(unsafe.Add(unsafe.Pointer(&now), unsafe.Sizeof(uint64(0))))
	was := *own
	set := now.Add(by)
	*(*int64)(unsafe.Add(unsafe.Pointer(&set), unsafe.Sizeof(uint64(0)))) = was
	if set.Sub(now) != 0 || set.Round(0).Sub(now.Round(0)) != by {
		t.Fatalf("%v is not %v, %v ahead", set, now, by)
	}
	return set
}

func TestStepsOfAClock(t *testing.T) {
	var w wallClock
	begun := time.Now()
	ahead := time.Duration(0)
	for i, test := range []struct{ set, want time.Duration }{
		{0, 0},
		{time.Hour, time.Hour},
		{0, 0},
		{-2 * time.Hour, -2 * time.Hour},
		{time.Millisecond, 0}, // steered
		{-time.Second, 0},
		{minStep, minStep},
		{minStep - 1, 0}, // and is not added to the next
		{minStep - 1, 0},
		{-minStep, -minStep},
		{24 * time.Hour, 24 * time.Hour},
	} {
		ahead += test.set
		now := begun.Add(time.Duration(i) * time.Second)
		diff.Equal(t, test.want, w.step(begun, setClock(t, now, ahead)), "set by", test.set)
	}
}

// setServer lets the lab's clock be set: from now on it is a real one.
func setServer(l *cacheLab) (step func(time.Duration)) {
	begun, ahead := time.Now(), time.Duration(0)
	l.s.started = begun
	l.s.now = func() time.Time {
		return setClock(l.t, begun.Add(time.Duration(l.at.Load())), ahead)
	}
	return func(d time.Duration) {
		ahead += d
		l.s.Retime()
	}
}

// After a suspension cached answers are as old as without it, also for the socket; a
// clock that is set back changes nothing.
func TestCachedAnswersAgeWhileTheMachineIsSuspended(t *testing.T) {
	l := newCacheLab(t, map[string][]string{
		"www.example.org A": {"www.example.org. 600 IN A 192.0.2.1"},
		"a.wild.test A":     {"a.wild.test. 60 IN A 192.0.2.2"},
		"no.wild.test A":    {"NXDOMAIN", soa + "60"},
	})
	step := setServer(l)
	names := []string{"www.example.org", "a.wild.test", "no.wild.test"}
	ask := func(wantAsked int, wantTTL uint32, when string) {
		t.Helper()
		for range 3 {
			for i, n := range names {
				r, _ := l.any("10.1.0.2", newQuery(n, dns.TypeA))
				if i == 0 && r.Answer[0].Header().Ttl != wantTTL {
					t.Errorf("%s: told %d s, want %d", when, r.Answer[0].Header().Ttl, wantTTL)
				}
			}
		}
		diff.Equal(t, wantAsked, l.upstreamAsked(), when, "questions to the upstream")
	}
	ask(3, 600, "at first")
	l.pass(10 * time.Second)
	ask(0, 590, "from the cache")
	step(100 * time.Second)
	ask(2, 490, "after 100 s, those of a minute are asked anew")
	step(-1000 * time.Second)
	ask(0, 490, "set back")
	l.pass(10 * time.Second)
	ask(0, 480, "set back, 10 s later")
	step(200 * time.Second)
	ask(2, 280, "after 200 s more")
	step(time.Hour)
	ask(3, 600, "after an hour")
}

// TestAnswersOfTheHostsResolversAge as the answers to pods do.
func TestAnswersOfTheHostsResolversAge(t *testing.T) {
	l := newHostLab(t)
	begun, ahead := time.Now(), time.Duration(0)
	l.s.started, l.s.now = begun, func() time.Time { return setClock(t, begun, ahead) }
	for _, step := range []struct {
		ahead time.Duration
		asked int
	}{{0, 1}, {time.Minute, 1}, {time.Hour, 2}, {time.Hour, 2}} {
		ahead = step.ahead
		l.s.Retime()
		for range 2 {
			l.asks("192.0.2.250", firstHost, "www.example.org")
		}
		diff.Equal(t, step.asked, len(l.hosts[firstHost].asked), ahead, "ahead: questions to the resolver")
	}
}

// The log tells times as the clock now does, on each way.
func TestTheLogFollowsAClockThatIsSet(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"www.example.org A": {"www.example.org. 600 IN A 192.0.2.1"}})
	step := setServer(l)
	l.lines.keep = true
	for _, d := range []time.Duration{0, time.Hour, -48 * time.Hour} {
		step(d)
		l.lines.all = nil
		for range 4 {
			l.any("10.1.0.4", newQuery("www.example.org", dns.TypeA))
		}
		diff.MustEqual(t, 4, len(l.lines.all), "lines")
		for _, rec := range l.lines.all {
			line := lineOf(t, rec)
			_, text, _ := strings.Cut(line, `"until":"`)
			text, _, _ = strings.Cut(text, `"`)
			until, err := time.Parse("2006-01-02T15:04:05.000000Z", text)
			fatal.If(t, err)
			if left := until.Sub(l.s.now().Round(0)); left < time.Second || left > 661*time.Second {
				t.Errorf("step %v, cache %q: open for %v by the clock: %s", d, rec.Cache, left, line)
			}
			diff.Equal(t, audit.Allowed, rec.Verdict, line)
		}
	}
}
