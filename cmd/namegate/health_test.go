package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/enforcer"
)

// TestHealth walks through an agent's life; each step says what the probes get.
func TestHealth(t *testing.T) {
	now := time.Unix(1000, 0)
	h := newHealth(func() time.Time { return now })
	socket := filepath.Join(t.TempDir(), "own", "health.sock")
	s, err := h.serve(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	for _, step := range []struct {
		name        string
		change      func(*health)
		after       time.Duration
		live, ready string // "" is well, else a part of the reason
	}{
		{"started", nil, 0, "", "not read yet"},
		{"the source is read", func(h *health) { h.synced = true }, 0, "", "starting"},
		{"another agent has the node", func(h *health) { h.standby = true }, time.Hour, "", ""},
		{"the node is taken", func(h *health) { h.standby, h.active = false, now }, 0, "", "not in force yet"},
		{"the kernel refuses", func(h *health) { h.failing = "no memory" }, 0, "", "no memory"},
		{"in force", func(h *health) { h.failing, h.inForce, h.probed = "", true, now }, 0, "", ""},
		{"a probe is late", nil, 2 * time.Second, "", ""},
		{"probes fail", nil, 2 * time.Second, "", "does not answer"},
		{"for long", nil, 30 * time.Second, "has not answered the agent itself for 34s", "does not answer"},
		{"again", func(h *health) { h.probed = now }, 0, "", ""},
		{"a table is missing", func(h *health) {
			h.deviations = func() []enforcer.Deviation { return []enforcer.Deviation{{Object: "nft table inet namegate"}} }
		}, 0, "", "not as wanted for more than a second: nft table inet namegate"},
		{"the table is back", func(h *health) { h.deviations = func() []enforcer.Deviation { return nil } }, 0, "", ""},
		{"later policies are refused", func(h *health) { h.failing = "no memory" }, 0, "", "no memory"},
	} {
		now = now.Add(step.after)
		if step.change != nil {
			h.set(step.change)
		}
		for path, want := range map[string]string{"/live": step.live, "/ready": step.ready} {
			err := probeHealth(context.Background(), socket, path)
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %s: %v, want %q", step.name, path, err, want)
			}
		}
	}
	s.close()
	if err := probeHealth(context.Background(), socket, "/live"); err == nil || !strings.Contains(err.Error(), "no agent at socket") {
		t.Errorf("without an agent: %v", err)
	}
}
