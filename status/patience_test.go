package status

import (
	"testing"
	"time"
)

func TestPatience(t *testing.T) {
	var p patience
	now := at(0)
	if p.left(now) != 0 {
		t.Error("waits before the first attempt")
	}
	var last time.Duration
	for i := range 20 {
		p.tried(now)
		left := p.left(now)
		if want := min(patienceFirst<<min(i, 12), patienceMost); left != want || left < last {
			t.Fatalf("attempt %d: %v, want %v", i, left, want)
		}
		if p.left(now.Add(left)) != 0 {
			t.Error("waits after its time")
		}
		last = left
		now = now.Add(left)
	}
	short := p
	short.cap(now, time.Minute)
	if short.left(now) != time.Minute {
		t.Errorf("waits %v", short.left(now))
	}
	p.quiet(now.Add(time.Second))
	if p.wait != patienceMost {
		t.Error("a quarrel of just now is forgotten")
	}
	p.quiet(now.Add(2*patienceMost + time.Second))
	if p != (patience{}) {
		t.Error("an old quarrel is not forgotten")
	}
}
