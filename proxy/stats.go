package proxy

import "sync/atomic"

// counters are the proxy's running totals.
type counters struct {
	Queries, QueriesTCP                     atomic.Uint64
	Malformed, Strangers                    atomic.Uint64
	ShedPod, ShedAll, ShedConnections       atomic.Uint64
	ShedZone                                atomic.Uint64
	UpstreamQueries, UpstreamTCP            atomic.Uint64
	UpstreamFailures, WrongReplies          atomic.Uint64
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

// Stats are the proxy's totals since its start at one moment, but for those that
// say "now".
type Stats struct {
	Queries          uint64 `json:"queries"`          // of known pods and the node, over UDP and TCP
	QueriesTCP       uint64 `json:"queriesTCP"`       // of those, over TCP
	Malformed        uint64 `json:"malformed"`        // packets that are no query
	Strangers        uint64 `json:"strangers"`        // queries from addresses that are no pod's: REFUSED
	RateLimited      uint64 `json:"rateLimited"`      // SERVFAIL, since the pod asked too fast
	RateSilenced     uint64 `json:"rateSilenced"`     // queries dropped without even that
	Held             uint64 `json:"held"`             // queries that waited for their pod to be known
	HeldOut          uint64 `json:"heldOut"`          // SERVFAIL, since it was not known in time or too many waited
	ShedPod          uint64 `json:"shedPod"`          // SERVFAIL, since the pod had too many in flight
	ShedAll          uint64 `json:"shedAll"`          // SERVFAIL, since all together had too many
	ShedZone         uint64 `json:"shedZone"`         // SERVFAIL, since max_concurrent of a forward were under way
	ShedConnections  uint64 `json:"shedConnections"`  // TCP connections closed at once
	UpstreamQueries  uint64 `json:"upstreamQueries"`  // sent, tries counted
	UpstreamTCP      uint64 `json:"upstreamTCP"`      // of those, asked again over TCP
	UpstreamFailures uint64 `json:"upstreamFailures"` // tries without a reply
	WrongReplies     uint64 `json:"wrongReplies"`     // replies that answer something else, ignored
	Coalesced        uint64 `json:"coalesced"`        // queries that shared the answer of one in flight
	Dishonest        uint64 `json:"dishonest"`        // answers to allowed names that were not trusted
	Grants           uint64 `json:"grants"`           // calls of the kernel's side that were acknowledged
	GrantFailures    uint64 `json:"grantFailures"`    // calls that failed: SERVFAIL
	AddressesGranted uint64 `json:"addressesGranted"`
	AddressesBlocked uint64 `json:"addressesBlocked"` // by the guard
	AddressesOver    uint64 `json:"addressesOver"`    // beyond the bound of one answer, taken out
	RepliesLost      uint64 `json:"repliesLost"`      // that could not be sent
	SelfQueries      uint64 `json:"selfQueries"`      // answered
	Panics           uint64 `json:"panics"`           // queries that ended in a fault of the proxy: SERVFAIL
	CacheHits        uint64 `json:"cacheHits"`        // questions answered by what was kept
	CacheMisses      uint64 `json:"cacheMisses"`      // questions that an upstream was asked for
	CacheStale       uint64 `json:"cacheStale"`       // questions answered by what was over, for want of a better
	Prefetches       uint64 `json:"prefetches"`       // hot answers that were renewed ahead of their end
	Followed         uint64 `json:"followed"`         // questions allowed since an allowed answer pointed there
	Allowed          uint64 `json:"allowed"`          // verdicts
	Unmatched        uint64 `json:"unmatched"`
	Refused          uint64 `json:"refused"`
	Blocked          uint64 `json:"blocked"`
	Failed           uint64 `json:"failed"`
	InFlight         int64  `json:"inFlight"`     // now
	Connections      int64  `json:"connections"`  // TCP, now
	CacheEntries     int64  `json:"cacheEntries"` // answers that are kept, now
	CacheBytes       int64  `json:"cacheBytes"`   // about what they take, now
	// Types are the verdicts by the type of the question, and Latency is how long
	// decided questions took. The metrics tell them.
	Types   [typesMost]TypeVerdicts `json:"-"`
	Latency Latency                 `json:"-"`
}

func (c *counters) snapshot() Stats {
	s := Stats{
		Queries: c.Queries.Load(), QueriesTCP: c.QueriesTCP.Load(),
		Malformed: c.Malformed.Load(), Strangers: c.Strangers.Load(),
		ShedPod: c.ShedPod.Load(), ShedAll: c.ShedAll.Load(), ShedConnections: c.ShedConnections.Load(), ShedZone: c.ShedZone.Load(),
		UpstreamQueries: c.UpstreamQueries.Load(), UpstreamTCP: c.UpstreamTCP.Load(),
		UpstreamFailures: c.UpstreamFailures.Load(), WrongReplies: c.WrongReplies.Load(),
		Coalesced: c.Coalesced.Load(), Dishonest: c.Dishonest.Load(),
		Grants: c.Grants.Load(), GrantFailures: c.GrantFailures.Load(),
		AddressesGranted: c.AddressesGranted.Load(), AddressesBlocked: c.AddressesBlocked.Load(),
		AddressesOver: c.AddressesOver.Load(), RepliesLost: c.RepliesLost.Load(), SelfQueries: c.SelfQueries.Load(),
		Panics: c.Panics.Load(), RateLimited: c.RateLimited.Load(), RateSilenced: c.RateSilenced.Load(),
		Held: c.Held.Load(), HeldOut: c.HeldOut.Load(),
		CacheHits: c.CacheHits.Load(), CacheMisses: c.CacheMisses.Load(), CacheStale: c.CacheStale.Load(),
		Prefetches: c.Prefetches.Load(), Followed: c.Followed.Load(),
		Types: c.verdicts.types(), Latency: c.latency.load(),
	}
	for _, of := range s.Types {
		s.Allowed += of.Allowed
		s.Unmatched += of.Unmatched
		s.Refused += of.Refused
		s.Blocked += of.Blocked
		s.Failed += of.Failed
	}
	return s
}
