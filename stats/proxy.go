package stats

// Proxy is the proxy's totals since its start at one moment, but for those that
// say "now".
type Proxy struct {
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
}
