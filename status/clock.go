package status

import "time"

// Clock is the time that a Reporter goes by. The election and the recorder of
// events have the system's, since client-go gives them no other.
type Clock interface {
	// Now returns the present.
	Now() time.Time
	// After returns a channel that gets the time once, when d has passed.
	After(d time.Duration) <-chan time.Time
}

type systemClock struct{}

func (systemClock) Now() time.Time                         { return time.Now() }
func (systemClock) After(d time.Duration) <-chan time.Time { return time.After(d) }
