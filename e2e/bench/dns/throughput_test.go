package main

import (
	"slices"
	"testing"

	"github.com/namegate/namegate/e2e/bench/figure"
)

func TestKinds(t *testing.T) {
	samples := []sample{{cpu: 1, qps: 10, removal: 100, others: 0.1}, {cpu: 2, qps: 20, removal: 200, others: 0.9}}
	for _, c := range []struct {
		of   kind
		want []float64
	}{
		{cpuOf, []float64{1, 2}}, {qpsOf, []float64{10, 20}}, {removalOf, []float64{100, 200}},
	} {
		got := c.of.read(samples)
		want := figure.Series{{Value: c.want[0], Others: 0.1}, {Value: c.want[1], Others: 0.9}}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", c.of.name, got, want)
		}
	}
}
