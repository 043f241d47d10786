package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/agent/health"
	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/audit/recent"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/fatal"
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

// TestDecisionsGoTwoWays: into the log, if there is one, and into what denials remember.
func TestDecisionsGoTwoWays(t *testing.T) {
	pod, addr := policy.PodRef{Namespace: "shop", Name: "a", UID: "1"}, netip.MustParseAddr("192.0.2.1")
	name, err := fqdn.ParseName("www.example.org")
	fatal.If(t, err)
	r := audit.Record{Time: time.Unix(1_700_000_000, 0), Pod: pod, Address: netip.MustParseAddr("10.1.0.5"), Name: name, Type: 1, Class: 1, Verdict: audit.Unmatched, Answers: []audit.Answer{{Addr: addr}}}
	var b bytes.Buffer
	log := audit.To(&b, audit.Options{Node: "n"})
	for _, d := range []decisions{{nil, recent.NewMemory()}, {log, recent.NewMemory()}} {
		d.Write(r)
		if seen := d.memory.Seen(pod, addr); len(seen) != 1 || seen[0].Name != name {
			t.Errorf("remembered: %+v", seen)
		}
	}
	fatal.If(t, log.Close(context.Background()))
	if n := strings.Count(b.String(), "www.example.org"); n != 1 {
		t.Errorf("the log is %q", b.String())
	}
}
