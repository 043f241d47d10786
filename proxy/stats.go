package proxy

import (
	"sync/atomic"

	"github.com/namegate/namegate/stats"
)

// counters are the proxy's running totals.
type counters struct {
	Queries, QueriesTCP                     atomic.Uint64
	Malformed, Strangers                    atomic.Uint64
	ShedPod, ShedAll, ShedConnections       atomic.Uint64
	Coalesced, Dishonest                    atomic.Uint64
	Grants, GrantFailures                   atomic.Uint64
	AddressesGranted, AddressesBlocked      atomic.Uint64
	AddressesOver, RepliesLost, SelfQueries atomic.Uint64
	Panics, RateLimited, RateSilenced       atomic.Uint64
	Held, HeldOut                           atomic.Uint64
	CacheHits, CacheMisses, CacheStale      atomic.Uint64
	Prefetches, Followed                    atomic.Uint64
	verdicts                                verdicts
	latency                                 latency
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
	s := Stats{Proxy: stats.Proxy{
		Queries: c.Queries.Load(), QueriesTCP: c.QueriesTCP.Load(),
		Malformed: c.Malformed.Load(), Strangers: c.Strangers.Load(),
		ShedPod: c.ShedPod.Load(), ShedAll: c.ShedAll.Load(), ShedConnections: c.ShedConnections.Load(),
		Coalesced: c.Coalesced.Load(), Dishonest: c.Dishonest.Load(),
		Grants: c.Grants.Load(), GrantFailures: c.GrantFailures.Load(),
		AddressesGranted: c.AddressesGranted.Load(), AddressesBlocked: c.AddressesBlocked.Load(),
		AddressesOver: c.AddressesOver.Load(), RepliesLost: c.RepliesLost.Load(), SelfQueries: c.SelfQueries.Load(),
		Panics: c.Panics.Load(), RateLimited: c.RateLimited.Load(), RateSilenced: c.RateSilenced.Load(),
		Held: c.Held.Load(), HeldOut: c.HeldOut.Load(),
		CacheHits: c.CacheHits.Load(), CacheMisses: c.CacheMisses.Load(), CacheStale: c.CacheStale.Load(),
		Prefetches: c.Prefetches.Load(), Followed: c.Followed.Load(),
	}, Types: c.verdicts.types(), Latency: c.latency.load()}
	for _, of := range s.Types {
		s.Allowed += of.Allowed
		s.Unmatched += of.Unmatched
		s.Refused += of.Refused
		s.Blocked += of.Blocked
		s.Failed += of.Failed
	}
	return s
}
