package main

import (
	"cmp"
	"slices"

	"github.com/namegate/namegate/e2e/bench/figure"
)

// reading is a number of one round, and how much the round was disturbed: the
// processor time of whoever has nothing to do with it, in shares of one core.
type reading struct{ value, others float64 }

// series is one number of several rounds.
type series []reading

// disturbed is the share of a core from which on a round does not count, if enough
// others do.
const disturbed = 0.25

// quiet returns the rounds that were not disturbed, in any order; at least the
// quieter half.
func (s series) quiet() series {
	sorted := slices.SortedStableFunc(slices.Values(s), func(a, b reading) int { return cmp.Compare(a.others, b.others) })
	n := (len(s) + 1) / 2
	for n < len(sorted) && sorted[n].others < disturbed {
		n++
	}
	return sorted[:n]
}

// median is that of the rounds that count, NaN of none.
func (s series) median() float64 {
	var values []float64
	for _, r := range s.quiet() {
		values = append(values, r.value)
	}
	return figure.Median(values)
}

// others is how much the rounds that count were disturbed, as a median.
func (s series) others() float64 {
	var values []float64
	for _, r := range s.quiet() {
		values = append(values, r.others)
	}
	return figure.Median(values)
}
