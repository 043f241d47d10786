// Package testclock is a clock that a test moves.
package testclock

import (
	"sync"
	"time"
)

// Clock stands still until it is moved.
type Clock struct {
	mu sync.Mutex
	at time.Time
}

// New returns a clock that shows a time.
func New(at time.Time) *Clock { return &Clock{at: at} }

// Now is the time that the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

// Pass moves the clock.
func (c *Clock) Pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// Set makes the clock show a time.
func (c *Clock) Set(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = at
}
