package counters

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/testkit/diff"
)

// TestBucketBounds: a slow, obvious twin agrees on every bucket, at the
// bounds themselves too.
func TestBucketBounds(t *testing.T) {
	all := []time.Duration{-time.Second, 0, 1, time.Hour}
	for _, b := range Bounds() {
		all = append(all, b-1, b, b+1)
	}
	for range 2000 {
		all = append(all, time.Duration(rand.Int64N(int64(7*time.Second))), time.Duration(rand.Int64N(int64(time.Millisecond))))
	}
	var h histogram
	var want Histogram
	for _, d := range all {
		h.observe(d)
		i := slices.IndexFunc(Bounds(), func(b time.Duration) bool { return d <= b })
		if i < 0 {
			i = len(Bounds())
		}
		want.Counts[i]++
		want.Sum += max(d, 0)
	}
	if got := h.load(); got != want || got.Total() != uint64(len(all)) {
		t.Errorf("%d of %d:\n%+v\nwant\n%+v", got.Total(), len(all), got, want)
	}
}

func TestBoundsRise(t *testing.T) {
	b := Bounds()
	if !slices.IsSorted(b) || b[0] != 50*time.Microsecond || b[len(b)-1] != 5*time.Second {
		t.Errorf("%v", b)
	}
	b[0] = time.Hour
	diff.Equal(t, 50*time.Microsecond, Bounds()[0], "the first bound after a caller changed its copy")
}

// TestStagesAddUp: the waits and the agent's own work are the total.
func TestStagesAddUp(t *testing.T) {
	var l latency
	var s Spent
	s.Heard(30 * time.Millisecond)
	s.Heard(12 * time.Millisecond)
	s.Acknowledged(6 * time.Millisecond)
	l.Observe(s, 50*time.Millisecond)
	l.Observe(Spent{}, 3*time.Millisecond)
	l.Hit(20 * time.Microsecond)
	got := l.load()
	for what, h := range map[string]struct {
		Histogram
		n   uint64
		sum time.Duration
	}{
		"decision": {got.Decision, 3, 5*time.Millisecond + 20*time.Microsecond},
		"upstream": {got.Upstream, 1, 42 * time.Millisecond},
		"grant":    {got.Grant, 1, 6 * time.Millisecond},
		"total":    {got.Total, 3, 53*time.Millisecond + 20*time.Microsecond},
	} {
		if h.Total() != h.n || h.Sum != h.sum {
			t.Errorf("%s: %d in %v, want %d in %v", what, h.Total(), h.Sum, h.n, h.sum)
		}
	}
}

// TestClockThatWentBackTookNoTime, in any stage.
func TestClockThatWentBackTookNoTime(t *testing.T) {
	var l latency
	var s Spent
	s.Heard(-time.Hour)
	s.Acknowledged(time.Second)
	l.Observe(s, -time.Minute)
	if got := l.load(); got.Decision.Sum != 0 || got.Upstream.Sum != 0 || got.Total.Sum != 0 || got.Grant.Sum != time.Second {
		t.Errorf("%+v", got)
	}
}

// TestVerdictCounters of each type.
func TestVerdictCounters(t *testing.T) {
	var v verdicts
	for verdict := audit.Allowed; verdict <= audit.Renewed; verdict++ {
		for range verdict {
			v.Add(verdict, dns.TypeMX)
		}
	}
	want := TypeVerdicts{Type: "MX", Allowed: uint64(audit.Allowed), Unmatched: uint64(audit.Unmatched), Refused: uint64(audit.Refused),
		Blocked: uint64(audit.Blocked), Failed: uint64(audit.Failed), Denied: uint64(audit.NameDenied), Renewed: uint64(audit.Renewed)}
	diff.Equal(t, want, v.types()[slices.Index(byName[:], dns.TypeMX)])
}
