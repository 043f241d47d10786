package figure

import (
	"math"
	"testing"
)

func TestSeries(t *testing.T) {
	for _, c := range []struct {
		name           string
		s              Series
		median, others float64
	}{
		{"quiet", Series{{3, 0}, {1, 0.1}, {2, 0.2}}, 2, 0.1},
		{"one disturbed round does not count", Series{{3, 0}, {1, 0.1}, {900, 1.5}}, 2, 0.05},
		{"half of them quiet is enough", Series{{3, 0}, {1, 0.1}, {900, 1.5}, {800, 0.9}}, 2, 0.05},
		{"the quieter half counts anyway", Series{{3, 0}, {800, 1.5}, {900, 0.9}}, 451.5, 0.45},
		{"the quieter half of an even number", Series{{800, 1.5}, {4, 0.8}, {900, 0.9}, {2, 0.7}}, 3, 0.75},
		{"the bound itself is disturbed", Series{{1, 0.2}, {2, Disturbed}}, 1, 0.2},
		{"of equally disturbed rounds the first", Series{{1, 2}, {2, 2}, {3, 2}, {4, 2}, {5, 2}}, 2, 2},
		{"one round", Series{{7, 2}}, 7, 2},
	} {
		if m, o := c.s.Median(), c.s.Others(); m != c.median || math.Abs(o-c.others) > 1e-9 {
			t.Errorf("%s: %v, others %v, want %v, %v", c.name, m, o, c.median, c.others)
		}
	}
	mixed := Series{{800, 1.5}, {4, 0.1}}
	if mixed.Median(); mixed[0].Value != 800 {
		t.Error("the Series was put in order")
	}
	if !math.IsNaN(Series(nil).Median()) {
		t.Error("no rounds have a median")
	}
}
