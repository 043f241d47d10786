package counters

import (
	"sync/atomic"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/upstream"
	"github.com/namegate/namegate/stats"
)

// Counters are the proxy's running totals.
type Counters struct {
	stats.Counters[atomic.Uint64]
	Verdicts verdicts // by type
	Latency  latency
}

// Limited returns the counter of the queries that a limit kept from being answered.
func (c *Counters) Limited(by policy.Limit) *atomic.Uint64 {
	switch by {
	case policy.LimitTypes:
		return &c.LimitedTypes
	case policy.LimitLabels:
		return &c.LimitedLabels
	case policy.LimitEncrypted:
		return &c.LimitedEncrypted
	}
	return &c.LimitedRate
}

// Stats are the proxy's totals and the additional figures of the metrics.
type Stats struct {
	stats.Proxy
	// Types are the verdicts by the type of the question.
	Types [other + 1]TypeVerdicts
	// Latency is how long decided questions took.
	Latency Latency
}

// Snapshot returns the totals so far, with the upstreams'.
func (c *Counters) Snapshot(up *upstream.Counters) Stats {
	s := Stats{Proxy: stats.Proxy{
		Counters: stats.Load(&c.Counters), ShedZone: up.Shed.Load(),
		UpstreamQueries: up.Queries.Load(), UpstreamTCP: up.TCP.Load(), UpstreamFailures: up.Failures.Load(), WrongReplies: up.WrongReplies.Load(),
	}, Types: c.Verdicts.types(), Latency: c.Latency.load()}
	for _, of := range s.Types {
		s.Allowed += of.Allowed
		s.Unmatched += of.Unmatched
		s.Refused += of.Refused
		s.Denied += of.Denied
		s.Blocked += of.Blocked
		s.Failed += of.Failed
		s.Renewed += of.Renewed
	}
	return s
}
