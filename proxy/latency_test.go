package proxy

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/wire"
)

// TestBucketsHoldWhatTheySay: a slow, obvious twin agrees on every bucket, at the
// bounds themselves too.
func TestBucketsHoldWhatTheySay(t *testing.T) {
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
	if Bounds()[0] != 50*time.Microsecond {
		t.Error("who asks for the bounds can change them")
	}
}

// TestStagesAddUp: what was waited for and the agent's own work are the whole.
func TestStagesAddUp(t *testing.T) {
	var l latency
	var s stages
	s.heard(30 * time.Millisecond)
	s.heard(12 * time.Millisecond)
	s.acknowledged(6 * time.Millisecond)
	l.observe(s, 50*time.Millisecond)
	l.observe(stages{}, 3*time.Millisecond)
	l.hits.observe(20 * time.Microsecond)
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
	var s stages
	s.heard(-time.Hour)
	s.acknowledged(time.Second)
	l.observe(s, -time.Minute)
	if got := l.load(); got.Decision.Sum != 0 || got.Upstream.Sum != 0 || got.Total.Sum != 0 || got.Grant.Sum != time.Second {
		t.Errorf("%+v", got)
	}
}

// stepping is a clock that a wait moves.
type stepping struct {
	mu sync.Mutex
	at time.Time
}

func (c *stepping) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *stepping) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// lengthy is a resolver that takes its time.
type lengthy struct {
	resolver
	clock *stepping
	takes time.Duration
}

func (r lengthy) resolve(a wire.Query) (found, error) {
	r.clock.pass(r.takes)
	return r.resolver.resolve(a)
}

// TestWaitsAreTold: how long a question waited for whom stands in the stage of
// that, whatever became of it, and nowhere else.
func TestWaitsAreTold(t *testing.T) {
	const up, kernel = 20 * time.Millisecond, 3 * time.Millisecond
	for _, tt := range []struct {
		name, from, asked       string
		upstream, grant, wanted bool
	}{
		{"allowed", "10.1.0.2", "www.example.org", true, true, true},
		{"unmatched", "10.1.0.2", "www.example.net", true, false, true},
		{"withheld", "10.1.0.3", "www.example.net", false, false, true},
		{"nobody answers", "10.1.0.2", "none.wild.test", true, false, true},
		{"the kernel refuses", "10.1.0.2", "www.example.org", true, true, true},
		{"not selected", "10.1.0.6", "www.example.org", false, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLab(t, map[string][]string{
				"www.example.org A": {"www.example.org. 60 IN A 192.0.2.1"}, "www.example.net A": {"www.example.net. 60 IN A 192.0.2.2"}, "none.wild.test A": {"error"},
			})
			clock := &stepping{at: noon}
			l.s.now = clock.now
			l.use(l.s.setup.Load().config, lengthy{l.up, clock, up})
			l.s.granter = slowly{clock, kernel, tt.name == "the kernel refuses"}
			l.ask(tt.from, tt.asked, dns.TypeA)
			got := l.s.Stats().Latency
			want := func(what string, h Histogram, on bool, took time.Duration) {
				n := uint64(0)
				if !on {
					took = 0
				} else {
					n = 1
				}
				if h.Total() != n || h.Sum != took {
					t.Errorf("%s: %d in %v, want %d in %v", what, h.Total(), h.Sum, n, took)
				}
			}
			total := time.Duration(0)
			if tt.upstream {
				total += up
			}
			if tt.grant {
				total += kernel
			}
			want("upstream", got.Upstream, tt.upstream, up)
			want("grant", got.Grant, tt.grant, kernel)
			want("decision", got.Decision, tt.wanted, 0)
			want("total", got.Total, tt.wanted, total)
		})
	}
}
