package limit

import (
	"maps"
	"sync"
	"time"

	"github.com/namegate/namegate/policy"
)

// maxZones bounds the zones of a pod that have a token bucket of their own.
const maxZones = 256

// Zones are token buckets of pods' queries, one for each registered zone. The zero value has none.
type Zones struct {
	mu   sync.Mutex
	pods map[policy.PodRef]map[policy.ZoneRate]*TokenBucket
}

// Take takes one token of the pod's bucket for a zone, if there is one. The bucket holds the
// queries of a minute. Zones beyond maxZones share a bucket.
func (z *Zones) Take(pod policy.PodRef, rate policy.ZoneRate, now time.Duration) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.pods == nil {
		z.pods = map[policy.PodRef]map[policy.ZoneRate]*TokenBucket{}
	}
	own := z.pods[pod]
	if own == nil {
		own = map[policy.ZoneRate]*TokenBucket{}
		z.pods[pod] = own
	}
	if own[rate] == nil && len(own) >= maxZones {
		maps.DeleteFunc(own, func(_ policy.ZoneRate, b *TokenBucket) bool { return b.full.Load() <= int64(now) }) // a full bucket is as good as none
		if len(own) >= maxZones {
			rate.Zone = ""
		}
	}
	b := own[rate]
	if b == nil {
		b = new(TokenBucket)
		own[rate] = b
	}
	return b.take(now, time.Minute/time.Duration(rate.PerMinute), rate.PerMinute)
}

// Sweep drops the buckets of pods that are not known any more.
func (z *Zones) Sweep(known func(policy.PodRef) bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	maps.DeleteFunc(z.pods, func(p policy.PodRef, _ map[policy.ZoneRate]*TokenBucket) bool { return !known(p) })
}
