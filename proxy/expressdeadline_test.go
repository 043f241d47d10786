package proxy

import (
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/corefile"
)

// answeredBy asks for a name on the short way and returns the address in the reply,
// or its response code.
func (l *expressLab) answeredBy(qname string) string {
	l.t.Helper()
	r := exchange(l.t, client(l.t, "udp", "127.0.0.2", l.listen()), newQuery(qname, dns.TypeA))
	if len(r.Answer) == 1 {
		return r.Answer[0].(*dns.A).A.String()
	}
	return dns.RcodeToString[r.Rcode]
}

// TestShortWayKeepsTheTimeout: the second upstream is asked after the zone's timeout,
// whatever that is, and the first is not asked twice.
func TestShortWayKeepsTheTimeout(t *testing.T) {
	const slow = 600 * time.Millisecond
	for _, tt := range []struct {
		name    string
		first   script
		timeout time.Duration
		want    string
		second  int64
	}{
		{"silence", silent, 100 * time.Millisecond, "192.0.2.2", 1},
		{"a slow answer", func(q *dns.Msg, tcp bool) [][]byte {
			time.Sleep(slow)
			return one("192.0.2.1")(q, tcp)
		}, time.Minute, "192.0.2.1", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := newExpressLab(t, false)
			first, second := startScript(t, tt.first), startScript(t, one("192.0.2.2"))
			l.asks(configWith(t), func(z *corefile.Zone) {
				z.Timeout, z.Deadline, z.MaxFails = tt.timeout, 2*time.Minute, 0
			}, first, second)
			began := time.Now()
			if got := l.answeredBy("www.example.org"); got != tt.want {
				t.Errorf("answered %s", got)
			}
			if took := time.Since(began); took < min(slow, tt.timeout) {
				t.Errorf("answered after %v", took)
			}
			if s := l.settled(); first.UDP.Load() != 1 || second.UDP.Load() != tt.second || s.UpstreamQueries != uint64(1+tt.second) || s.UpstreamFailures != uint64(tt.second) {
				t.Errorf("the first was asked %d times, the second %d times; counted %d tries, %d failures", first.UDP.Load(), second.UDP.Load(), s.UpstreamQueries, s.UpstreamFailures)
			}
		})
	}
}

// TestShortWayKeepsTheDeadline: it bounds the tries of the short and the long way
// together.
func TestShortWayKeepsTheDeadline(t *testing.T) {
	const deadline = 300 * time.Millisecond
	l := newExpressLab(t, false)
	l.asks(configWith(t), func(z *corefile.Zone) {
		z.Timeout, z.Deadline, z.MaxFails = deadline/3, deadline, 0
	}, startScript(t, silent), startScript(t, silent))
	began := time.Now()
	if got := l.answeredBy("www.example.org"); got != "SERVFAIL" {
		t.Errorf("answered %s", got)
	}
	if took := time.Since(began); took < deadline {
		t.Errorf("given up after %v", took)
	}
	if s := l.settled(); s.UpstreamQueries == 0 || s.UpstreamQueries > 3 || s.UpstreamFailures != s.UpstreamQueries {
		t.Errorf("%d tries and %d failures where three tries fit into the deadline", s.UpstreamQueries, s.UpstreamFailures)
	}
}

// TestShortWayTellsFailures: an upstream that does not answer a query on the short
// way is counted and probed, though another answers in its place.
func TestShortWayTellsFailures(t *testing.T) {
	l := newExpressLab(t, false)
	refusing, good := startScript(t, silent), startScript(t, one("192.0.2.2"))
	refusing.Stop()
	l.asks(configWith(t), func(z *corefile.Zone) {
		z.Policy, z.Deadline = corefile.RoundRobin, time.Minute
	}, refusing, good)
	if got := l.answeredBy("www.example.org"); got != "192.0.2.2" {
		t.Errorf("answered %s", got)
	}
	if s := l.settled(); s.UpstreamFailures != 1 || s.UpstreamQueries < 2 {
		t.Errorf("%d tries, %d failures", s.UpstreamQueries, s.UpstreamFailures)
	}
	until(t, "the end of the first upstream", func() bool { return l.s.Upstreams()[0].Down == 1 })
}
