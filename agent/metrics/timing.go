package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Timing measures how long policies take until they are in force, and counts failures.
type Timing struct {
	now               func() time.Time
	compiled, applied prometheus.Histogram
	failed            prometheus.Counter
}

// NewTiming returns a Timing that has measured nothing yet.
func NewTiming(now func() time.Time) *Timing {
	buckets := append(append([]float64(nil), bucketBounds...), 10, 30) // a snapshot may be large, a kernel slow
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "namegate", Name: name, Help: help, Buckets: buckets})
	}
	return &Timing{now: now,
		compiled: histogram("compile_seconds", "Duration of the compilation of policies and pods."),
		applied:  histogram("apply_seconds", "Duration of the write to the kernel, including failed attempts."),
		failed: prometheus.NewCounter(prometheus.CounterOpts{Namespace: "namegate", Name: "apply_failures_total",
			Help: "Attempts to apply a snapshot that failed; each is retried."}),
	}
}

// Compile runs do and measures it.
func (t *Timing) Compile(do func()) {
	began := t.now()
	do()
	t.compiled.Observe(t.now().Sub(began).Seconds())
}

// Apply runs do, measures it and counts its failure.
func (t *Timing) Apply(do func() error) error {
	began := t.now()
	err := do()
	t.applied.Observe(t.now().Sub(began).Seconds())
	if err != nil {
		t.failed.Inc()
	}
	return err
}

func (t *Timing) collect(ch chan<- prometheus.Metric) {
	t.compiled.Collect(ch)
	t.applied.Collect(ch)
	t.failed.Collect(ch)
}
