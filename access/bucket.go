package access

import (
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// How often callers may make the agent ask the API server who they are: each
// credential that is not remembered costs a review. A person's commands ask a few
// times in a second, and wrong guesses are worth no more.
const (
	reviewsPerSecond = 5  // of one address
	reviewBurst      = 20 // of one address
	allPerSecond     = 40
	allBurst         = 80
	// addressesMost bounds the addresses whose rate is known.
	addressesMost = 1024
)

// bucket holds tokens: rate a second, at most burst.
type bucket struct {
	rate, burst float64
	tokens      float64
	at          time.Time
}

func newBucket(rate, burst float64, now time.Time) *bucket {
	return &bucket{rate: rate, burst: burst, tokens: burst, at: now}
}

// fill brings the tokens up to now and tells whether there is one.
func (b *bucket) fill(now time.Time) bool {
	if passed := now.Sub(b.at); passed > 0 {
		b.tokens = min(b.burst, b.tokens+b.rate*passed.Seconds())
		b.at = now
	}
	return b.tokens >= 1
}

// throttle bounds reviews, of each address and of all.
type throttle struct {
	now func() time.Time

	mu  sync.Mutex
	all *bucket
	by  *simplelru.LRU[netip.Addr, *bucket]
}

func newThrottle(now func() time.Time) *throttle {
	by, err := simplelru.NewLRU[netip.Addr, *bucket](addressesMost, nil)
	if err != nil {
		panic(err) // of a size below one
	}
	return &throttle{now: now, all: newBucket(allPerSecond, allBurst, now()), by: by}
}

// take tells whether a caller may cause one more review. IPv6 callers count by
// their /64, which is one network.
func (t *throttle) take(from netip.Addr) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	from = from.Unmap().WithZone("")
	if from.Is6() {
		if p, err := from.Prefix(64); err == nil {
			from = p.Addr()
		}
	}
	own, ok := t.by.Get(from)
	if !ok {
		own = newBucket(reviewsPerSecond, reviewBurst, now)
		t.by.Add(from, own)
	}
	if !own.fill(now) || !t.all.fill(now) {
		return false
	}
	own.tokens--
	t.all.tokens--
	return true
}
