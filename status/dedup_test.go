package status

import (
	"fmt"
	"testing"
	"time"
)

// TestDedupIsBounded: in its events in a round, and in its memory.
func TestDedupIsBounded(t *testing.T) {
	var d dedup
	now := time.Unix(1_700_000_000, 0)
	round := func(keys int) (due int) {
		d.begin()
		for i := range keys {
			key := eventKey{kind: "Pod", object: fmt.Sprint(i), reason: "x"}
			if d.due(now, key) {
				due++
			}
			if d.due(now, key) {
				t.Error("twice in a round")
			}
		}
		d.end(now)
		return due
	}
	for i, want := range []int{maxPerRound, maxPerRound, 5, 0} {
		if got := round(2*maxPerRound + 5); got != want {
			t.Errorf("round %d: %d events, want %d", i, got, want)
		}
		now = now.Add(time.Second)
	}
	now = now.Add(returnedAfter)
	if round(0); len(d.emitted) != 0 {
		t.Errorf("%d events are remembered", len(d.emitted))
	}
}
