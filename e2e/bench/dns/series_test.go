package main

import (
	"math"
	"testing"
)

func TestSeries(t *testing.T) {
	for _, c := range []struct {
		name           string
		s              series
		median, others float64
	}{
		{"quiet", series{{3, 0}, {1, 0.1}, {2, 0.2}}, 2, 0.1},
		{"one disturbed round does not count", series{{3, 0}, {1, 0.1}, {900, 1.5}}, 2, 0.05},
		{"half of them quiet is enough", series{{3, 0}, {1, 0.1}, {900, 1.5}, {800, 0.9}}, 2, 0.05},
		{"the quieter half counts anyway", series{{3, 0}, {800, 1.5}, {900, 0.9}}, 451.5, 0.45},
		{"the quieter half of an even number", series{{800, 1.5}, {4, 0.8}, {900, 0.9}, {2, 0.7}}, 3, 0.75},
		{"the bound itself is disturbed", series{{1, 0.2}, {2, disturbed}}, 1, 0.2},
		{"of equally disturbed rounds the first", series{{1, 2}, {2, 2}, {3, 2}, {4, 2}, {5, 2}}, 2, 2},
		{"one round", series{{7, 2}}, 7, 2},
	} {
		if m, o := c.s.median(), c.s.others(); m != c.median || math.Abs(o-c.others) > 1e-9 {
			t.Errorf("%s: %v, others %v, want %v, %v", c.name, m, o, c.median, c.others)
		}
	}
	mixed := series{{800, 1.5}, {4, 0.1}}
	if mixed.median(); mixed[0].value != 800 {
		t.Error("the series was put in order")
	}
	if !math.IsNaN(series(nil).median()) {
		t.Error("no rounds have a median")
	}
}

func TestKinds(t *testing.T) {
	samples := []sample{{cpu: 1, qps: 10, removal: 100, others: 0.1}, {cpu: 2, qps: 20, removal: 200, others: 0.9}}
	for _, c := range []struct {
		of   kind
		want series
	}{
		{cpuOf, series{{1, 0.1}, {2, 0.9}}}, {qpsOf, series{{10, 0.1}, {20, 0.9}}}, {removalOf, series{{100, 0.1}, {200, 0.9}}},
	} {
		got := c.of.read(samples)
		if len(got) != 2 || got[0] != c.want[0] || got[1] != c.want[1] {
			t.Errorf("%s: %v, want %v", c.of.name, got, c.want)
		}
	}
}
