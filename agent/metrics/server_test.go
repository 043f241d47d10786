package metrics

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/namegate/namegate/testkit/diff"
)

// handler answers for an agent that is well.
func handler(profiles bool) http.Handler {
	well := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })
	return Handler(Options{Facts: func() Facts { return Facts{} }, Timing: NewTiming(time.Now), Live: well, Ready: well, Profiles: profiles})
}

// TestProfilesAreOff unless they are asked for.
func TestProfilesAreOff(t *testing.T) {
	for _, on := range []bool{false, true} {
		h := handler(on)
		for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/pprof/symbol"} {
			r := httptest.NewRecorder()
			h.ServeHTTP(r, httptest.NewRequest("GET", path, nil))
			diff.Equal(t, map[bool]int{false: 404, true: 200}[on], r.Code, "with --pprof=", on, path)
		}
	}
}

// TestTiming: each duration is in its own histogram, failures too.
func TestTiming(t *testing.T) {
	now := time.Unix(1000, 0)
	timed := NewTiming(func() time.Time { return now })
	timed.Compile(func() { now = now.Add(2 * time.Millisecond) })
	refused := errors.New("refused")
	for _, err := range []error{nil, refused, nil} {
		diff.Is(t, err, timed.Apply(func() error { now = now.Add(300 * time.Millisecond); return err }))
	}
	got := scraped(t, quietFacts(t), timed)
	for sample, want := range map[string]string{
		"namegate_compile_seconds_count": "1", "namegate_compile_seconds_sum": "0.002", `namegate_compile_seconds_bucket{le="0.001"}`: "0",
		`namegate_compile_seconds_bucket{le="0.0025"}`: "1", "namegate_apply_seconds_count": "3", `namegate_apply_seconds_bucket{le="0.25"}`: "0",
		`namegate_apply_seconds_bucket{le="0.5"}`: "3", `namegate_apply_seconds_bucket{le="30"}`: "3", "namegate_apply_failures_total": "1",
	} {
		diff.Equal(t, want, got[sample], sample)
	}
}
