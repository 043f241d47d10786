package health

import (
	"context"
	"errors"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestHealth walks through an agent's life; each step has the probes' replies.
func TestHealth(t *testing.T) {
	now := time.Unix(1000, 0)
	h := New(func() time.Time { return now })
	socket := filepath.Join(t.TempDir(), "own", "health.sock")
	s, err := h.Serve(socket)
	fatal.If(t, err)
	defer s.Close()
	for _, step := range []struct {
		name        string
		change      func()
		after       time.Duration
		live, ready string // "" is well, else a part of the reason
	}{
		{"started", nil, 0, "", "not read yet"},
		{"the dataplane does not work", func() { h.Blocked(errors.New("dataplane iptables does not work")) }, time.Hour, "", "dataplane iptables does not work"},
		{"the dataplane works", func() { h.Blocked(nil) }, 0, "", "not read yet"},
		{"the source is read", h.Synced, 0, "", "starting"},
		{"another agent has the node", h.StandBy, time.Hour, "", ""},
		{"the node is taken", h.Active, 0, "", "not in force yet"},
		{"the kernel refuses", func() { h.RolledOut(false, "no memory") }, 0, "", "no memory"},
		{"in force", func() { h.RolledOut(true, ""); h.Answered() }, 0, "", ""},
		{"a probe is late", nil, 2 * time.Second, "", ""},
		{"probes fail", nil, 2 * time.Second, "", "does not answer"},
		{"for long", nil, 30 * time.Second, "has not answered the agent itself for 34s", "does not answer"},
		{"again", h.Answered, 0, "", ""},
		{"a table is missing", func() { h.Watch(func() []string { return []string{"nft table inet namegate"} }) }, 0, "",
			"not as wanted for more than a second: nft table inet namegate"},
		{"the table is back", func() { h.Watch(func() []string { return nil }) }, 0, "", ""},
		{"later policies are refused", func() { h.RolledOut(true, "no memory") }, 0, "", "no memory"},
	} {
		now = now.Add(step.after)
		if step.change != nil {
			step.change()
		}
		for path, want := range map[string]string{"/live": step.live, "/ready": step.ready} {
			err := Probe(context.Background(), socket, path)
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %s: %v, want %q", step.name, path, err, want)
			}
		}
	}
	s.Close()
	diff.Fails(t, "no agent at socket", Probe(context.Background(), socket, "/live"), "without an agent")
}

// TestProbesReportNoAddresses: only root, by the socket, gets the kernel's error.
func TestProbesReportNoAddresses(t *testing.T) {
	h := New(time.Now)
	h.Synced()
	h.Active()
	h.Answered()
	h.RolledOut(true, "write nft table: element 10.244.1.17 is refused")
	_, public := h.Public()
	r := httptest.NewRecorder()
	public.ServeHTTP(r, httptest.NewRequest("GET", "/readyz", nil))
	if body := r.Body.String(); r.Code != 503 || strings.Contains(body, "10.244.1.17") || !strings.Contains(body, "not in force") {
		t.Errorf("the port: %d %s", r.Code, body)
	}
	socket := filepath.Join(t.TempDir(), "health.sock")
	s, err := h.Serve(socket)
	fatal.If(t, err)
	defer s.Close()
	diff.Fails(t, "10.244.1.17", Probe(t.Context(), socket, "/ready"), "the socket")
}
