package proxy

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/namegate/namegate/proxy/corefile"
)

// underWay notices a query that does not end, without a lock for each query:
// queries are counted by the era in which they began. Two eras are told apart,
// the present one and the one before, and the next begins only once the one
// before has no query left. So a query that hangs keeps its era from ending.
type underWay struct {
	counts  [2]atomic.Int64
	present atomic.Uint32 // which of counts

	mu    sync.Mutex
	since time.Duration // when the present era began
}

// begin counts a query; the result is for end.
func (u *underWay) begin() (era uint32) {
	era = u.present.Load()
	u.counts[era].Add(1)
	return era
}

func (u *underWay) end(era uint32) { u.counts[era].Add(-1) }

// hung tells at the moment now whether a query has been under way for longer
// than most. It has to be asked often, as the self-query does: eras end here. A
// hung query is noticed between most and twice most after its begin.
func (u *underWay) hung(now, most time.Duration) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	present := u.present.Load()
	switch {
	case now < u.since:
		u.since = now // the clock went back
	case now-u.since <= most:
	case u.counts[1-present].Load() > 0:
		return true
	default:
		u.present.Store(1 - present)
		u.since = now
	}
	return false
}

// hangMargin is what a query may take beyond its bounds before the proxy calls
// itself hung: goroutines wait for a processor too.
const hangMargin = time.Second

// longest is how long a query may take by the configuration: two questions (a
// completed search path asks a second one), the grant, and a client over TCP that
// is slow to take the reply.
func longest(c *corefile.Config) time.Duration {
	var deadline time.Duration
	for _, z := range c.Zones {
		deadline = max(deadline, z.Deadline)
	}
	return 2*deadline + c.GrantTimeout + tcpMessage + hangMargin
}
