package access

import (
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
)

// The maximum rate at which callers make the agent identify them: each credential that is
// not cached costs a review by the API server, or a search for its issuer. A person's
// commands ask a few times in a second, and wrong guesses deserve no more. All together
// take half of the rate of the agent's client: the rest is for known callers.
var (
	reviewRate    = rateLimit{5, 20} // of one address
	allReviewRate = rateLimit{10, 40}
)

// maxAddresses bounds the addresses whose rate is known.
const maxAddresses = 1024

// rateLimit is how often something may be, and how often at once.
type rateLimit struct {
	perSecond rate.Limit
	burst     int
}

func (p rateLimit) limiter() *rate.Limiter { return rate.NewLimiter(p.perSecond, p.burst) }

// throttle bounds how often callers do something, of each address and of all.
type throttle struct {
	now  func() time.Time
	each rateLimit

	mu  sync.Mutex
	all *rate.Limiter
	by  *simplelru.LRU[netip.Addr, *rate.Limiter]
}

func newThrottle(now func() time.Time, each, all rateLimit) *throttle {
	by, err := simplelru.NewLRU[netip.Addr, *rate.Limiter](maxAddresses, nil)
	if err != nil {
		panic(err) // of a size below one
	}
	return &throttle{now: now, each: each, all: all.limiter(), by: by}
}

// callerNetwork is what bounds of one address count by: the address, of IPv6 its /64, which is one caller's, but of
// the node itself.
func callerNetwork(a netip.Addr) netip.Addr {
	if a = a.Unmap().WithZone(""); a.Is6() && !a.IsLoopback() {
		a = netip.PrefixFrom(a, 64).Masked().Addr()
	}
	return a
}

// take tells whether a caller may do it once more.
func (t *throttle) take(from netip.Addr) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	from = callerNetwork(from)
	own, ok := t.by.Get(from)
	if !ok {
		own = t.each.limiter()
		t.by.Add(from, own)
	}
	return own.TokensAt(now) >= 1 && t.all.AllowN(now, 1) && own.AllowN(now, 1)
}
