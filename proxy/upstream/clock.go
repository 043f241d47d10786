package upstream

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// tick is the least time between two sweeps, and so how late one may be.
const tick = 2 * time.Millisecond

// never is later than any time.
const never = time.Duration(math.MaxInt64)

// clock is the one timer of an upstream, set to the earliest deadline: a timer for each
// query would cost more than the query's system calls.
type clock struct {
	at    atomic.Int64 // when it rings
	mu    sync.Mutex   // of setting it
	timer *time.Timer
}

// now is the time since the upstream was made, by a clock that is never set.
func (u *upstream) now() time.Duration { return time.Since(u.created) }

// wake makes the clock ring at that time, if it does not before.
func (u *upstream) wake(at time.Duration) {
	c := &u.clock
	if int64(at) >= c.at.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if int64(at) >= c.at.Load() {
		return
	}
	c.at.Store(int64(at))
	in := max(at-u.now(), 0)
	if c.timer == nil {
		c.timer = time.AfterFunc(in, u.ring)
		return
	}
	c.timer.Reset(in)
}

// ring sweeps. A query that is added after its socket was swept sees that no time is set.
func (u *upstream) ring() {
	u.clock.at.Store(int64(never))
	now := u.now()
	next := min(u.sockets.sweep(now), u.conns.sweep(now))
	if next != never {
		u.wake(max(next, now+tick))
	}
}
