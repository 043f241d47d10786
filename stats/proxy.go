package stats

import (
	"reflect"
	"sync/atomic"
)

// Counters are the proxy's own running totals: of atomic.Uint64 where the proxy counts,
// of uint64 at one moment.
type Counters[N any] struct {
	Queries          N `json:"queries"`         // of known pods and the node, over UDP and TCP
	QueriesTCP       N `json:"queriesTCP"`      // the part over TCP
	Malformed        N `json:"malformed"`       // packets that are no query
	UnknownSources   N `json:"unknownSources"`  // queries from addresses that are no pod's: REFUSED
	RateLimited      N `json:"rateLimited"`     // SERVFAIL, since the pod asked too fast
	RateSilenced     N `json:"rateSilenced"`    // queries dropped without even that
	Parked           N `json:"parked"`          // queries that waited until their pod was known
	ParkFailed       N `json:"parkFailed"`      // SERVFAIL, since it was not known in time or too many waited
	ShedPod          N `json:"shedPod"`         // SERVFAIL, since the pod had too many in flight
	ShedAll          N `json:"shedAll"`         // SERVFAIL, since all together had too many
	ShedConnections  N `json:"shedConnections"` // TCP connections closed at once
	Coalesced        N `json:"coalesced"`       // queries that shared the answer of one in flight
	Dishonest        N `json:"dishonest"`       // answers to allowed names that were not trusted
	Grants           N `json:"grants"`          // calls of the kernel's side that were acknowledged
	GrantFailures    N `json:"grantFailures"`   // calls that failed: SERVFAIL
	AddressesGranted N `json:"addressesGranted"`
	AddressesBlocked N `json:"addressesBlocked"` // by the guard
	AddressesOver    N `json:"addressesOver"`    // beyond the bound of one answer, taken out
	RepliesLost      N `json:"repliesLost"`      // that could not be sent
	SelfQueries      N `json:"selfQueries"`      // answered
	Panics           N `json:"panics"`           // queries that ended in a fault of the proxy: SERVFAIL
	CacheHits        N `json:"cacheHits"`        // questions answered from the cache
	CacheMisses      N `json:"cacheMisses"`      // questions that an upstream was asked for
	CacheStale       N `json:"cacheStale"`       // questions answered by expired answers, for lack of a better one
	Prefetches       N `json:"prefetches"`       // hot answers that were renewed ahead of their end
	Followed         N `json:"followed"`         // questions allowed since an allowed answer pointed there
	UseQueries       N `json:"useQueries"`       // queries of the agent for names whose addresses are in use
	AddressesRenewed N `json:"addressesRenewed"` // addresses in use that the answers to these held
	AddressesKept    N `json:"addressesKept"`    // addresses in use that stay open without an answer
	LimitedTypes     N `json:"limitedTypes"`     // answered without data, since the policies withhold the type
	LimitedLabels    N `json:"limitedLabels"`    // REFUSED, since the name has more labels than the policies allow
	LimitedEncrypted N `json:"limitedEncrypted"` // for names that lead to encrypted resolvers, which the policies deny
	LimitedRate      N `json:"limitedRate"`      // REFUSED, beyond the policies' rate for a zone
}

// Load returns the totals of this moment.
func Load(c *Counters[atomic.Uint64]) (now Counters[uint64]) {
	from, to := reflect.ValueOf(c).Elem(), reflect.ValueOf(&now).Elem()
	for i := range to.NumField() {
		to.Field(i).SetUint(from.Field(i).Addr().Interface().(*atomic.Uint64).Load())
	}
	return now
}

// Proxy is the proxy's totals since its start at one moment, except for values that say
// "now".
type Proxy struct {
	Counters[uint64]
	ShedZone         uint64 `json:"shedZone"`         // SERVFAIL, since max_concurrent of a forward were under way
	UpstreamQueries  uint64 `json:"upstreamQueries"`  // sent, tries counted
	UpstreamTCP      uint64 `json:"upstreamTCP"`      // the part retried over TCP
	UpstreamFailures uint64 `json:"upstreamFailures"` // tries without a reply
	WrongReplies     uint64 `json:"wrongReplies"`     // replies that answer something else, ignored
	Allowed          uint64 `json:"allowed"`          // verdicts
	Unmatched        uint64 `json:"unmatched"`
	Refused          uint64 `json:"refused"`
	Denied           uint64 `json:"denied"`
	Blocked          uint64 `json:"blocked"`
	Failed           uint64 `json:"failed"`
	Renewed          uint64 `json:"renewed"`
	InFlight         int64  `json:"inFlight"`     // now
	Connections      int64  `json:"connections"`  // TCP, now
	CacheEntries     int64  `json:"cacheEntries"` // answers that are kept, now
	CacheBytes       int64  `json:"cacheBytes"`   // their approximate memory, now
}
