package proxy

import (
	"sync/atomic"

	"github.com/namegate/namegate/stats"
)

// counters are the proxy's running totals.
type counters struct {
	stats.Counters[atomic.Uint64]
	verdicts verdicts
	latency  latency
}

// Stats are the proxy's totals and what the metrics have beside them.
type Stats struct {
	stats.Proxy
	// Types are the verdicts by the type of the question.
	Types [typesMost]TypeVerdicts
	// Latency is how long decided questions took.
	Latency Latency
}

func (c *counters) snapshot() Stats {
	s := Stats{Proxy: stats.Proxy{Counters: stats.Load(&c.Counters)}, Types: c.verdicts.types(), Latency: c.latency.load()}
	for _, of := range s.Types {
		s.Allowed += of.Allowed
		s.Unmatched += of.Unmatched
		s.Refused += of.Refused
		s.Blocked += of.Blocked
		s.Failed += of.Failed
	}
	return s
}
