package cache

import (
	"testing"
	"time"
)

// TestHitsAreCountedWithoutAGap, and does not run over.
func TestHitsAreCountedWithoutAGap(t *testing.T) {
	var h hitCounter
	for i, step := range []struct {
		at  time.Duration
		hot bool
	}{{0, false}, {5, false}, {10, true}, {20, true}, {31, false}, {32, false}, {33, true}, {30, true}} {
		if got := h.hit(step.at, 10, 3); got != step.hot {
			t.Errorf("%d: hot %v", i, got)
		}
	}
	for range 1000 {
		h.hit(33, 10, 3)
	}
	if n := h.count.Load(); n > 3 {
		t.Errorf("it has counted to %d", n)
	}
}
