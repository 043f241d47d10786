package manifest

import "time"

// Clock is the time that a Source goes by.
type Clock interface {
	// Now returns the present.
	Now() time.Time
	// After returns a channel that gets the time once, when d has passed.
	After(d time.Duration) <-chan time.Time
}

type systemClock struct{}

func (systemClock) Now() time.Time                         { return time.Now() }
func (systemClock) After(d time.Duration) <-chan time.Time { return time.After(d) }
