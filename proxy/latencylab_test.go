package proxy

import (
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/counters"
	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/policytest"
	"github.com/namegate/namegate/testkit/testclock"
)

// typeA is the place of type A in counters.Stats.Types.
const typeA = 0

// slowKernel is a kernel that takes its time, and may refuse then.
type slowKernel struct {
	always
	clock   *testclock.Clock
	takes   time.Duration
	refuses bool
}

func (s slowKernel) Share() int { return math.MaxInt }

func (s slowKernel) GrantThen(_ []policy.Grant, then GrantCallback) {
	s.clock.Pass(s.takes)
	var err error
	if s.refuses {
		err = errKernelBusy
	}
	then.Granted(err, false)
}

// TestRepliesFromTheCacheAreObserved: a cached reply is a decision of its own without a
// wait, with or without a log.
func TestRepliesFromTheCacheAreObserved(t *testing.T) {
	for _, logged := range []bool{true, false} {
		l := newCacheLab(t, map[string][]string{"a.wild.test A": {"a.wild.test. 60 IN A 192.0.2.1"}})
		if !logged {
			l.s.log = nil
		}
		hit := 0
		for range 5 {
			if _, again := l.any("10.1.0.2", newQuery("a.wild.test", dns.TypeA)); again {
				hit++
			}
		}
		s := l.s.Stats()
		if got := s.Latency; hit == 0 || got.Decision.Total() != 5 || got.Total.Total() != 5 || got.Upstream.Total() != 1 {
			t.Errorf("logged %v, %d given again: %d decisions, %d in all, %d upstream", logged, hit,
				got.Decision.Total(), got.Total.Total(), got.Upstream.Total())
		}
		if s.Types[typeA].Allowed != 5 || s.CacheEntries != 1 || s.CacheBytes <= 0 {
			t.Errorf("%+v", s)
		}
	}
}

// TestForwardedIsObserved: each question over UDP is in the stages once, with
// the upstream's time in the upstream's, also if the library has to parse the answer; and its
// time is in the log.
func TestForwardedIsObserved(t *testing.T) {
	const waits = 30 * time.Millisecond
	for _, how := range []string{"in place", "refused by the kernel", "by the library"} {
		l, grants, fails := newSocketLab(t, false), uint64(1), how == "refused by the kernel"
		if fails {
			l.granter.fails = func([]policy.Grant) error { return errKernelBusy }
		}
		l.asks(configWith(t), nil, startScript(t, func(q *dns.Msg, tcp bool) [][]byte {
			time.Sleep(waits) // the upstream's
			if how == "by the library" {
				return [][]byte{says(q, nil, "www.example.org. 60 IN CNAME www.example.net.")} // not plain
			}
			return honest("192.0.2.1")(q, tcp)
		}))
		exchange(t, client(t, "udp", "127.0.0.2", l.listen()), newQuery("www.example.org", dns.TypeA))
		s := l.settled()
		if how == "by the library" {
			grants = 0
		}
		diff.MustEqual(t, int64(grants), l.granter.thens.Load(), "grants: nothing is decided anew")
		got := s.Latency
		for what, h := range map[string]counters.Histogram{"decision": got.Decision, "upstream": got.Upstream, "total": got.Total} {
			diff.Equal(t, 1, h.Total(), how, what)
		}
		diff.Equal(t, grants, got.Grant.Total(), how, "grants")
		if r := l.log.of(policytest.Name("www.example.org")); len(r) != 1 || r[0].Latency < waits {
			t.Errorf("%s: logged %+v", how, r)
		}
		if got.Upstream.Sum < waits || got.Total.Sum < got.Upstream.Sum+got.Grant.Sum || got.Total.Sum != got.Decision.Sum+got.Upstream.Sum+got.Grant.Sum {
			t.Errorf("decision %v, upstream %v, grant %v, total %v", got.Decision.Sum, got.Upstream.Sum, got.Grant.Sum, got.Total.Sum)
		}
		if of := s.Types[typeA]; fails && of.Failed != 1 || !fails && of.Allowed != 1 {
			t.Errorf("%+v", of)
		}
	}
}

// TestPrefetchesAddNoLatency: they are decided, and no latency of a pod's.
func TestPrefetchesAddNoLatency(t *testing.T) {
	l := newLab(t, map[string][]string{"www.example.org A": {"www.example.org. 60 IN A 192.0.2.1"}})
	snap := l.s.snapshot.Load()
	over := make(chan struct{})
	e := &errand{then: func(*query) { close(over) }}
	e.run(l.s, netip.Addr{}, snap.ViewOf(labPods[0].PodRef), snap, wire.Query{Question: wire.Question{Name: policytest.Name("www.example.org"), Type: dns.TypeA, Class: dns.ClassINET}})
	<-over
	if s := l.s.Stats(); s.Types[typeA].Allowed != 1 || s.Latency.Total.Total() != 0 {
		t.Errorf("%+v, %+v", s.Types[typeA], s.Latency.Total)
	}
}

// TestVerdictsByType: each type that has a name is counted by it, all others are one.
func TestVerdictsByType(t *testing.T) {
	l := newLab(t, map[string][]string{})
	for qtype, want := range map[uint16]string{
		dns.TypeA: "A", dns.TypeAAAA: "AAAA", dns.TypeHTTPS: "HTTPS", dns.TypeSVCB: "SVCB", dns.TypeSRV: "SRV", dns.TypeMX: "MX", dns.TypeTXT: "TXT",
		dns.TypePTR: "PTR", dns.TypeCNAME: "CNAME", dns.TypeNS: "NS", dns.TypeSOA: "SOA", dns.TypeNAPTR: "other", dns.TypeANY: "other", 65280: "other",
	} {
		before := l.s.Stats()
		l.ask("10.1.0.3", "www.example.net", qtype)
		now := l.s.Stats()
		for i, of := range now.Types {
			n := uint64(0)
			if of.Type == want {
				n = 1
			}
			diff.Equal(t, n, of.Refused-before.Types[i].Refused, "refused of type", qtype, "counted as", of.Type)
		}
		diff.Equal(t, before.Refused+1, now.Refused, "refused of type", qtype)
	}
}

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
