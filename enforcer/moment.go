package enforcer

import (
	"fmt"
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// moment is a time as the grant table and the comments of set entries keep it, in
// nanoseconds of the kernel's clock that nobody sets (CLOCK_MONOTONIC): of 100,000
// grants each byte counts, a node whose clock is put right must neither end grants
// nor prolong them, and the next agent reads the same clock. It stands still while
// the machine is suspended, as the kernel's own timeouts do.
type moment int64

// farthest is how far from the agent's start a time may be, so that moments can be
// reckoned with.
const farthest = time.Duration(math.MaxInt64 / 4)

func (e *Enforcer) moment(t time.Time) moment {
	return e.origin + moment(min(max(t.Sub(e.started), -farthest), farthest))
}

// instant is one reading of the clocks.
type instant struct {
	now   moment
	epoch time.Time // of moment 0, as the clock that is set now tells the time
}

func (e *Enforcer) instant() instant {
	t := e.now()
	now := e.moment(t)
	return instant{now, t.Add(-time.Duration(now))}
}

// seconds returns the first whole second that is not before a moment.
func (m moment) seconds() int64 {
	s := int64(m) / int64(time.Second)
	if time.Duration(s)*time.Second < time.Duration(m) {
		s++
	}
	return s
}

// unixFrom is where seconds in a comment begin to be those since 1970, which
// earlier agents wrote: as seconds since the machine started they are 31 years.
const unixFrom = 1_000_000_000

// readMoment returns the moment that stands in a comment in seconds.
func readMoment(seconds int64, epoch time.Time) moment {
	if seconds >= unixFrom {
		return moment(time.Unix(seconds, 0).Sub(epoch))
	}
	return moment(max(seconds, -unixFrom) * int64(time.Second))
}

// running returns how long the kernel's clock has run.
func running() (moment, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0, fmt.Errorf("read the kernel's clock: %w", err)
	}
	return moment(t.Nano()), nil
}
