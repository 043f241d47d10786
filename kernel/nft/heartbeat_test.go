package nft

import (
	"testing"
	"time"
)

// TestUnmoved: a flush by another program between the two readings must not make every later
// heartbeat a slow one.
func TestUnmoved(t *testing.T) {
	t.Parallel()
	of := func(timeouts ...time.Duration) (out []aliveElement) {
		for _, d := range timeouts {
			out = append(out, aliveElement{timeout: d})
		}
		return out
	}
	for _, tt := range []struct {
		name      string
		last, now []aliveElement
		want      bool
	}{
		{"an older kernel", of(renewals[0]), of(renewals[0]), true},
		{"flushed meanwhile", of(renewals[0]), of(), false},
		{"expired before", of(), of(), false},
		{"renewed by another agent", of(0), of(renewals[0]), false},
	} {
		if got := unmoved(tt.last, tt.now); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// TestMovesAgain: after a kernel that seemed not to move the element, heartbeats try again to move it.
func TestMovesAgain(t *testing.T) {
	t.Parallel()
	var tables Tables
	tables.replaces.Store(replacedBeats)
	for n := range replacedBeats {
		if tables.triesToMove() {
			t.Fatalf("heartbeat %d moves the element", n)
		}
	}
	if !tables.triesToMove() || !tables.triesToMove() {
		t.Error("heartbeats replace the element for good")
	}
}
