package limit

import (
	"sync/atomic"
	"time"
)

// TokenBucket is held as a single number: the time at which the bucket is full again
// (the generic cell rate algorithm). The zero value is a full bucket.
type TokenBucket struct {
	full atomic.Int64 // nanoseconds on the caller's clock
}

// Take takes one token at the time now, if there is one: rate tokens come back each
// second and the bucket holds burst of them.
func (b *TokenBucket) Take(now time.Duration, rate, burst int) bool {
	return b.take(now, time.Second/time.Duration(rate), burst)
}

// take is Take where one token comes back after each time of interval.
func (b *TokenBucket) take(now, interval time.Duration, burst int) bool {
	each := int64(interval)
	room := each * int64(burst)
	for {
		full := b.full.Load()
		next := max(full, int64(now)) + each
		if full-int64(now) > room {
			next = int64(now) + each // the clock went back, or the limits changed
		}
		if next-int64(now) > room {
			return false
		}
		if b.full.CompareAndSwap(full, next) {
			return true
		}
	}
}

// used tells how many tokens have not come back at the time now.
func (b *TokenBucket) used(now, interval time.Duration) int {
	return int((max(b.full.Load()-int64(now), 0) + int64(interval) - 1) / int64(interval))
}

// charge takes n tokens, or those that there are; none if n is negative. No other goroutine has the bucket.
func (b *TokenBucket) charge(now, interval time.Duration, burst, n int) {
	if n > 0 {
		b.full.Store(min(max(b.full.Load(), int64(now))+int64(n)*int64(interval), int64(now)+int64(burst)*int64(interval)))
	}
}
