package limit

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestTokenBucket(t *testing.T) {
	var b TokenBucket
	taken := func(now time.Duration, most int) (n int) {
		for range most {
			if b.Take(now, 100, 5) {
				n++
			}
		}
		return n
	}
	for i, tt := range []struct {
		now  time.Duration
		want int
	}{
		{0, 5}, {0, 0}, {9 * time.Millisecond, 0}, {10 * time.Millisecond, 1}, {30 * time.Millisecond, 2},
		{time.Hour, 5}, {time.Hour, 0}, {0, 5}, // the clock went back: not shut for an hour
	} {
		if got := taken(tt.now, 20); got != tt.want {
			t.Errorf("step %d at %v: %d taken, want %d", i, tt.now, got, tt.want)
		}
	}
}

// TestTokenBucketLikeItsTwin: a bucket that counts tokens the slow way.
func TestTokenBucketLikeItsTwin(t *testing.T) {
	for range 50 {
		rate, burst := 1<<rand.IntN(10), 1+rand.IntN(20)
		each := time.Second / time.Duration(rate)
		var b TokenBucket
		var now, last time.Duration
		tokens := float64(burst)
		for range 500 {
			now += each * time.Duration(rand.IntN(5)) / 2
			tokens = min(float64(burst), tokens+float64(now-last)/float64(each))
			last = now
			want := tokens >= 1
			if want {
				tokens--
			}
			if got := b.Take(now, rate, burst); got != want {
				t.Fatalf("rate %d, burst %d at %v: %v, want %v", rate, burst, now, got, want)
			}
		}
	}
}
