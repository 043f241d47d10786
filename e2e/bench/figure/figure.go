// Package figure is the form in which benchmarks say what they measured: one
// JSON line a figure.
package figure

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
)

// Figure is one measured value, mostly the median of several rounds, and that of
// a peer which ran in the same rounds.
type Figure struct {
	// Name is the figure's, as in dns.cached.cpu_us.
	Name  string  `json:"figure"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Peer is what the value is compared with; without one PeerValue and Ratio
	// are not written.
	Peer      string  `json:"peer,omitempty"`
	PeerValue float64 `json:"peer_value,omitempty"`
	// Ratio is Value / PeerValue.
	Ratio float64 `json:"ratio,omitempty"`
	// Rate is the queries a second at which it was measured; zero: as many as
	// the server takes.
	Rate int `json:"rate,omitempty"`
	// State says when it was measured, where that is what figures differ in.
	State string `json:"state,omitempty"`
}

// Against returns the figure with a peer's value beside it.
func (f Figure) Against(peer string, value float64) Figure {
	f.Peer, f.PeerValue = peer, value
	if value != 0 {
		f.Ratio = f.Value / value
	}
	return f
}

// Write writes the figure as one line, its numbers to four significant digits.
func (f Figure) Write(w io.Writer) error {
	f.Value, f.PeerValue, f.Ratio = significant(f.Value), significant(f.PeerValue), significant(f.Ratio)
	line, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("write figure %s: %w", f.Name, err)
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

// significant rounds to four significant digits: a benchmark knows no more.
func significant(v float64) float64 {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return v
	}
	// Dividing by a whole power gives the nearest number; multiplying by its
	// inverse would give 5.5200000000000005.
	if digits := 3 - int(math.Floor(math.Log10(math.Abs(v)))); digits > 0 {
		scale := math.Pow10(digits)
		return math.Round(v*scale) / scale
	}
	return math.Round(v)
}

// Median returns the middle of the values, the mean of the middle two of an even
// number, NaN of none. The values stay in their order.
func Median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	n := len(s)
	switch {
	case n == 0:
		return math.NaN()
	case n%2 == 1:
		return s[n/2]
	}
	return (s[n/2-1] + s[n/2]) / 2
}

// Quantile returns the smallest value that at least the share q of all values
// does not exceed (nearest rank), NaN of none. sorted is in ascending order.
func Quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

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
