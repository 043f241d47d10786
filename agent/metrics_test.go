package agent

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/agent/health"
)

// TestProbesOverHTTP: /healthz and /readyz say what `namegate health` does, with the
// reason in the body.
func TestProbesOverHTTP(t *testing.T) {
	now := time.Unix(1000, 0)
	a := &agent{health: health.New(func() time.Time { return now })}
	handler := a.metricsHandler()
	for _, step := range []struct {
		name        string
		change      func()
		after       time.Duration
		live, ready string // "" is well, else a part of the reason
	}{
		{"started", func() {}, 0, "", "not read yet"},
		{"in force", func() { a.health.Synced(); a.health.Active(); a.health.RolledOut(true, ""); a.health.Answered() }, 0, "", ""},
		{"the proxy hangs", func() {}, 4 * time.Second, "", "does not answer"},
		{"for long", func() {}, time.Minute, "has not answered the agent itself for 1m4s", "does not answer"},
	} {
		now = now.Add(step.after)
		step.change()
		for path, want := range map[string]string{"/healthz": step.live, "/readyz": step.ready} {
			r := httptest.NewRecorder()
			handler.ServeHTTP(r, httptest.NewRequest("GET", path, nil))
			var v struct {
				OK     bool
				Reason string
			}
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
