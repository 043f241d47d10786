package backoff

import (
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	var b Backoff
	now := time.Unix(1_700_000_000, 0)
	if b.Left(now) != 0 {
		t.Error("waits before the first attempt")
	}
	var last time.Duration
	for i := range 20 {
		b.Attempted(now)
		left := b.Left(now)
		if want := min(First<<min(i, 12), Most); left != want || left < last {
			t.Fatalf("attempt %d: %v, want %v", i, left, want)
		}
		if b.Left(now.Add(left)) != 0 {
			t.Error("waits after its time")
		}
		last = left
		now = now.Add(left)
	}
	short := b
	short.Limit(now, time.Minute)
	if short.Left(now) != time.Minute {
		t.Errorf("waits %v", short.Left(now))
	}
	b.Settled(now.Add(time.Second))
	if b.wait != Most {
		t.Error("a quarrel of just now is forgotten")
	}
	b.Settled(now.Add(2*Most + time.Second))
	if b != (Backoff{}) {
		t.Error("an old quarrel is not forgotten")
	}
}
