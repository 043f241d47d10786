package limit

import (
	"maps"
	"sync"
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// maxZones bounds the zones of a pod that have a token bucket of their own.
const maxZones = 256

// Zones are token buckets of pods' queries, of each registered zone one for each rate. The zero value has none.
type Zones struct {
	mu   sync.Mutex
	pods map[policy.PodRef]map[fqdn.Name]zoneBuckets
}

// zoneBuckets are the buckets of a zone by their tokens a minute, which they also hold.
type zoneBuckets map[int]*TokenBucket

// Take takes one token of the pod's bucket for a zone and a rate, if there is one. Names of one zone
// may have several rates: a query takes a token of the zone's other buckets too, since a rate limits
// the queries for all names of the zone. Zones beyond maxZones share buckets.
func (z *Zones) Take(pod policy.PodRef, rate policy.ZoneRate, now time.Duration) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.pods == nil {
		z.pods = map[policy.PodRef]map[fqdn.Name]zoneBuckets{}
	}
	own := z.pods[pod]
	if own == nil {
		own = map[fqdn.Name]zoneBuckets{}
		z.pods[pod] = own
	}
	zone := rate.Zone
	if own[zone] == nil && len(own) >= maxZones {
		maps.DeleteFunc(own, func(_ fqdn.Name, b zoneBuckets) bool { return b.full(now) })
		if len(own) >= maxZones {
			zone = ""
		}
	}
	if own[zone] == nil {
		own[zone] = zoneBuckets{}
	}
	return own[zone].take(rate.PerMinute, now)
}

// full tells whether the buckets are as good as none.
func (z zoneBuckets) full(now time.Duration) bool {
	for _, b := range z {
		if b.full.Load() > int64(now) {
			return false
		}
	}
	return true
}

func (z zoneBuckets) take(perMinute int, now time.Duration) bool {
	b := z[perMinute]
	if b == nil {
		maps.DeleteFunc(z, func(_ int, b *TokenBucket) bool { return b.full.Load() <= int64(now) })
		b = new(TokenBucket)
		for n, other := range z {
			b.charge(now, tokenTime(perMinute), perMinute, other.used(now, tokenTime(n))-b.used(now, tokenTime(perMinute)))
		}
		z[perMinute] = b
	}
	if !b.take(now, tokenTime(perMinute), perMinute) {
		return false
	}
	for n, other := range z {
		if other != b {
			other.charge(now, tokenTime(n), n, 1)
		}
	}
	return true
}

// tokenTime is the time after which a token comes back.
func tokenTime(perMinute int) time.Duration { return time.Minute / time.Duration(perMinute) }

// Sweep drops the buckets of pods that are not known any more.
func (z *Zones) Sweep(known func(policy.PodRef) bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	maps.DeleteFunc(z.pods, func(p policy.PodRef, _ map[fqdn.Name]zoneBuckets) bool { return !known(p) })
}
