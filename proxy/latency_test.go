package proxy

import (
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/counters"
	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/testclock"
)

// lengthy is a resolver that takes its time.
type lengthy struct {
	resolver
	clock *testclock.Clock
	takes time.Duration
}

func (r lengthy) resolve(a wire.Query) (found, error) {
	r.clock.Pass(r.takes)
	return r.resolver.resolve(a)
}

// TestStagesAreReported: each wait of a query is in its stage, whatever the result, and
// in no other.
func TestStagesAreReported(t *testing.T) {
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
			clock := testclock.New(noon)
			l.s.now = clock.Now
			l.use(l.s.setup.Load().config, lengthy{l.up, clock, up})
			l.s.granter = slowKernel{clock: clock, takes: kernel, refuses: tt.name == "the kernel refuses"}
			l.ask(tt.from, tt.asked, dns.TypeA)
			got := l.s.Stats().Latency
			want := func(what string, h counters.Histogram, on bool, took time.Duration) {
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
			if tt.wanted && l.log.last(t).Latency != total {
				t.Errorf("logged %v, want %v", l.log.last(t).Latency, total)
			}
		})
	}
}
