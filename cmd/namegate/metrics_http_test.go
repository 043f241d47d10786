package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestProbesOverHTTP: /healthz and /readyz say what `namegate health` does, with the
// reason in the body.
func TestProbesOverHTTP(t *testing.T) {
	now := time.Unix(1000, 0)
	a := &agent{health: newHealth(func() time.Time { return now })}
	handler := a.metricsHandler(false)
	for _, step := range []struct {
		name        string
		change      func(*health)
		after       time.Duration
		live, ready string // "" is well, else a part of the reason
	}{
		{"started", func(*health) {}, 0, "", "not read yet"},
		{"in force", func(h *health) { h.synced, h.inForce, h.active, h.probed = true, true, now, now }, 0, "", ""},
		{"the proxy hangs", func(*health) {}, 4 * time.Second, "", "does not answer"},
		{"for long", func(*health) {}, time.Minute, "has not answered the agent itself for 1m4s", "does not answer"},
	} {
		now = now.Add(step.after)
		a.health.set(step.change)
		for path, want := range map[string]string{"/healthz": step.live, "/readyz": step.ready} {
			r := httptest.NewRecorder()
			handler.ServeHTTP(r, httptest.NewRequest("GET", path, nil))
			var v verdict
			if err := json.Unmarshal(r.Body.Bytes(), &v); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			well := want == ""
			if (r.Code == 200) != well || !well && r.Code != 503 || v.OK != well || !strings.Contains(v.Reason, want) {
				t.Errorf("%s: %s: %d %s, want %q", step.name, path, r.Code, r.Body, want)
			}
		}
	}
}

// TestStrangersGetNoAddresses: why the kernel refused is for root, who asks by the socket.
func TestStrangersGetNoAddresses(t *testing.T) {
	a := &agent{health: newHealth(time.Now)}
	a.health.set(func(h *health) {
		h.synced, h.inForce, h.active, h.probed = true, true, time.Now(), time.Now()
		h.failing = "write nft table: element 10.244.1.17 is refused"
	})
	for name, c := range map[string]struct {
		handler http.Handler
		told    bool
	}{
		"port": {a.metricsHandler(false), false}, "socket": {a.health.handler(a.health.ready, whole), true},
	} {
		r := httptest.NewRecorder()
		c.handler.ServeHTTP(r, httptest.NewRequest("GET", "/readyz", nil))
		if body := r.Body.String(); r.Code != 503 || strings.Contains(body, "10.244.1.17") != c.told || !strings.Contains(body, "not in force") {
			t.Errorf("%s: %d %s", name, r.Code, body)
		}
	}
}

// TestProfilesAreOff unless they are asked for.
func TestProfilesAreOff(t *testing.T) {
	for _, on := range []bool{false, true} {
		a := &agent{health: newHealth(time.Now)}
		handler := a.metricsHandler(on)
		for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/pprof/symbol"} {
			r := httptest.NewRecorder()
			handler.ServeHTTP(r, httptest.NewRequest("GET", path, nil))
			if want := map[bool]int{false: 404, true: 200}[on]; r.Code != want {
				t.Errorf("with --pprof=%v %s is %d, want %d", on, path, r.Code, want)
			}
		}
	}
}

func TestProfilesNeedAListener(t *testing.T) {
	for f, bad := range map[*agentFlags]bool{
		{}: false, {pprof: true}: true, {metricsAddr: "127.0.0.1:9953"}: false, {pprof: true, metricsAddr: "127.0.0.1:9953"}: false,
	} {
		err := f.checkMetrics()
		if (err != nil) != bad || bad && !strings.Contains(err.Error(), "--metrics-addr") {
			t.Errorf("%+v: %v", f, err)
		}
	}
	if f := agentCommand().Flags().Lookup("pprof"); f == nil || f.DefValue != "false" {
		t.Errorf("--pprof is %+v", f)
	}
}

// TestTiming: what took how long stands in its own histogram, failures too.
func TestTiming(t *testing.T) {
	now := time.Unix(1000, 0)
	timed := newTiming(func() time.Time { return now })
	timed.compile(func() { now = now.Add(2 * time.Millisecond) })
	refused := errors.New("refused")
	for _, err := range []error{nil, refused, nil} {
		if got := timed.apply(func() error { now = now.Add(300 * time.Millisecond); return err }); !errors.Is(got, err) {
			t.Errorf("%v, want %v", got, err)
		}
	}
	got := scraped(t, quietFacts(t), timed)
	for sample, want := range map[string]string{
		"namegate_compile_seconds_count": "1", "namegate_compile_seconds_sum": "0.002", `namegate_compile_seconds_bucket{le="0.001"}`: "0",
		`namegate_compile_seconds_bucket{le="0.0025"}`: "1", "namegate_apply_seconds_count": "3", `namegate_apply_seconds_bucket{le="0.25"}`: "0",
		`namegate_apply_seconds_bucket{le="0.5"}`: "3", `namegate_apply_seconds_bucket{le="30"}`: "3", "namegate_apply_failures_total": "1",
	} {
		if got[sample] != want {
			t.Errorf("%s is %q, want %s", sample, got[sample], want)
		}
	}
}
