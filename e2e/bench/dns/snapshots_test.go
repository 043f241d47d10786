package main

import "testing"

// The rate of snapshots is that of most turns: one that the machine held up does not
// count, and a benchmark without snapshots is none.
func TestEnoughSnapshots(t *testing.T) {
	turns := func(rates ...float64) (out []sample) {
		for _, r := range rates {
			out = append(out, sample{snapshots: r})
		}
		return out
	}
	if err := enough(turns(9.5, 8.8, 1.2, 9.1)); err != nil {
		t.Error(err)
	}
	if err := enough(turns(0, 9.5, 1, 1.2)); err == nil {
		t.Error("a benchmark without snapshots counts")
	}
}
