package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// timing is how long it takes until policies are in force, and how often that fails.
type timing struct {
	now               func() time.Time
	compiled, applied prometheus.Histogram
	failed            prometheus.Counter
}

func newTiming(now func() time.Time) *timing {
	buckets := append(append([]float64(nil), bucketBounds...), 10, 30) // a snapshot may be large, a kernel slow
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "namegate", Name: name, Help: help, Buckets: buckets})
	}
	return &timing{now: now,
		compiled: histogram("compile_seconds", "How long it took to compile policies and pods into a snapshot."),
		applied:  histogram("apply_seconds", "How long it took to bring a snapshot, or the pods that waited for their names, into force; failed tries too."),
		failed: prometheus.NewCounter(prometheus.CounterOpts{Namespace: "namegate", Name: "apply_failures_total",
			Help: "Snapshots that the kernel did not take; each is tried again."}),
	}
}

// compile counts how long do took.
func (t *timing) compile(do func()) {
	began := t.now()
	do()
	t.compiled.Observe(t.now().Sub(began).Seconds())
}

// apply counts how long do took, and its failure.
func (t *timing) apply(do func() error) error {
	began := t.now()
	err := do()
	t.applied.Observe(t.now().Sub(began).Seconds())
	if err != nil {
		t.failed.Inc()
	}
	return err
}

func (t *timing) collect(ch chan<- prometheus.Metric) {
	t.compiled.Collect(ch)
	t.applied.Collect(ch)
	t.failed.Collect(ch)
}
