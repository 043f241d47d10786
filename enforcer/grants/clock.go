package grants

import (
	"fmt"
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// monotonic is a time in nanoseconds of CLOCK_MONOTONIC. The table has deadlines in it:
// with 100,000 grants each byte counts, setting a node's clock must neither end grants nor
// prolong them, and the next agent reads the same clock. Like the kernel's own timeouts it stands still while the machine is suspended.
type monotonic int64

// offsetMax bounds how far from the agent's start a time may be, so that monotonic times
// can be added and subtracted.
const offsetMax = time.Duration(math.MaxInt64 / 4)

// Clock converts times to monotonic times.
type Clock struct {
	now     func() time.Time
	started time.Time
	origin  monotonic // at started
}

// NewClock returns a clock whose monotonic time is now running.
func NewClock(now func() time.Time, running time.Duration) Clock {
	return Clock{now, now(), monotonic(running)}
}

// KernelClock returns the clock of the kernel.
func KernelClock() (Clock, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return Clock{}, fmt.Errorf("read the kernel's clock: %w", err)
	}
	return NewClock(time.Now, time.Duration(t.Nano())), nil
}

// at converts a time.
func (c *Clock) at(t time.Time) monotonic {
	return c.origin + monotonic(min(max(t.Sub(c.started), -offsetMax), offsetMax))
}

// reading is one reading of the clock.
type reading struct {
	now   monotonic
	epoch time.Time // of monotonic time 0, by the wall clock as it is set now
}

func (c *Clock) read() reading {
	t := c.now()
	now := c.at(t)
	return reading{now, t.Add(-time.Duration(now))}
}

// seconds returns the first whole second that is not before m.
func (m monotonic) seconds() int64 {
	s := int64(m) / int64(time.Second)
	if time.Duration(s)*time.Second < time.Duration(m) {
		s++
	}
	return s
}

// parseSeconds returns the time that a comment says in seconds.
func parseSeconds(seconds int64) monotonic {
	const most = int64(offsetMax / time.Second)
	return monotonic(min(max(seconds, -most), most) * int64(time.Second))
}
