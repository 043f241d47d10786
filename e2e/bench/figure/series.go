package figure

import (
	"cmp"
	"slices"
)

// Reading is a number of one round, and how much the round was disturbed: the
// processor time of unrelated programs, in shares of one core.
type Reading struct{ Value, Others float64 }

// Series is one number of several rounds.
type Series []Reading

// Disturbed is the share of a core from which on a round does not count, if enough
// others do.
const Disturbed = 0.25

// quiet returns the rounds that were not disturbed, in any order; at least the
// quieter half.
func (s Series) quiet() Series {
	sorted := slices.SortedStableFunc(slices.Values(s), func(a, b Reading) int { return cmp.Compare(a.Others, b.Others) })
	n := (len(s) + 1) / 2
	for n < len(sorted) && sorted[n].Others < Disturbed {
		n++
	}
	return sorted[:n]
}

// Median is that of the rounds that count, NaN of none.
func (s Series) Median() float64 {
	var values []float64
	for _, r := range s.quiet() {
		values = append(values, r.Value)
	}
	return Median(values)
}

// Others is how much the rounds that count were disturbed, as a median.
func (s Series) Others() float64 {
	var values []float64
	for _, r := range s.quiet() {
		values = append(values, r.Others)
	}
	return Median(values)
}
