package main

import (
	"testing"

	"github.com/namegate/namegate/e2e/bench/ground"
)

// Each bound belongs to a figure that the benchmark reports, and only one kind of
// bound is set.
func TestGoals(t *testing.T) {
	seen := map[ground.Goal]bool{}
	for _, g := range goals {
		bounds := 0
		for _, bound := range []float64{g.Ratio, g.Value, g.More} {
			if bound > 0 {
				bounds++
			}
		}
		key := ground.Goal{Figure: g.Figure, Peer: g.Peer, State: g.State, Rate: g.Rate}
		if bounds != 1 || g.Peer == "" || seen[key] {
			t.Errorf("%+v", g)
		}
		seen[key] = true
	}
}
