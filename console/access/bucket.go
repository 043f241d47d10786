package access

import (
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// How often callers may make the agent find out who they are: each credential that
// is not remembered costs a review by the API server, or a search for who signed it.
// A person's commands ask a few times in a second, and wrong guesses are worth no
// more. All take half of what the agent's client for this may ask in a second: the
// rest is for those that are known.
const (
	reviewsPerSecond = 5  // of one address
	reviewBurst      = 20 // of one address
	allPerSecond     = 10
	allBurst         = 40
	// addressesMost bounds the addresses whose rate is known.
	addressesMost = 1024
)

// rate is how often something may be, and how often at once.
type rate struct{ perSecond, burst float64 }

var (
	reviewRate    = rate{reviewsPerSecond, reviewBurst}
	allReviewRate = rate{allPerSecond, allBurst}
)

// bucket holds tokens: as many come in a second as its rate says.
type bucket struct {
	rate
	tokens float64
	at     time.Time
}

func newBucket(r rate, now time.Time) *bucket { return &bucket{rate: r, tokens: r.burst, at: now} }

// fill brings the tokens up to now and tells whether there is one.
func (b *bucket) fill(now time.Time) bool {
	if passed := now.Sub(b.at); passed > 0 {
		b.tokens = min(b.burst, b.tokens+b.perSecond*passed.Seconds())
		b.at = now
	}
	return b.tokens >= 1
}

// throttle bounds how often callers do something, of each address and of all.
type throttle struct {
	now  func() time.Time
	each rate

	mu  sync.Mutex
	all *bucket
	by  *simplelru.LRU[netip.Addr, *bucket]
}

func newThrottle(now func() time.Time, each, all rate) *throttle {
	by, err := simplelru.NewLRU[netip.Addr, *bucket](addressesMost, nil)
	if err != nil {
		panic(err) // of a size below one
	}
	return &throttle{now: now, each: each, all: newBucket(all, now()), by: by}
}

// take tells whether a caller may do it once more. IPv6 callers count by
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
		own = newBucket(t.each, now)
		t.by.Add(from, own)
	}
	if !own.fill(now) || !t.all.fill(now) {
		return false
	}
	own.tokens--
	t.all.tokens--
	return true
}
