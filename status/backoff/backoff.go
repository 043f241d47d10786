package backoff

import "time"

// How long an object is left alone after it was written, or after that failed: at first,
// and at most.
const (
	First = time.Second
	Most  = 5 * time.Minute
)

// Backoff says when one object may be written next. Its zero value says: now.
type Backoff struct {
	next time.Time
	wait time.Duration
}

// Left returns how long there is to wait, 0 if not at all.
func (b *Backoff) Left(now time.Time) time.Duration { return max(0, b.next.Sub(now)) }

// Since returns how long the last attempt is ago.
func (b *Backoff) Since(now time.Time) time.Duration { return now.Sub(b.next) + b.wait }

// Attempted notes an attempt.
func (b *Backoff) Attempted(now time.Time) {
	b.wait = min(max(2*b.wait, First), Most)
	b.next = now.Add(b.wait)
}

// Limit makes the wait after an attempt no longer than most.
func (b *Backoff) Limit(now time.Time, most time.Duration) {
	b.wait = min(b.wait, most)
	b.next = now.Add(b.wait)
}

// Settled notes that nothing is to be written, and returns whether the attempts of before
// are long enough ago to be forgotten.
func (b *Backoff) Settled(now time.Time) bool {
	if now.Sub(b.next) > b.wait {
		*b = Backoff{}
	}
	return b.wait == 0
}
