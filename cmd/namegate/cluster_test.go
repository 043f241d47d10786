package main

import (
	"strings"
	"testing"
	"time"
)

func TestClusterFlags(t *testing.T) {
	whole := clusterFlags{namespace: "namegate", podName: "agent-1", daemonSet: "agents", companionPorts: "Always"}
	for name, c := range map[string]struct {
		change func(*clusterFlags)
		node   string
		want   string // a part of the error, "" for none
	}{
		"whole":         {func(*clusterFlags) {}, "n1", ""},
		"no node":       {func(*clusterFlags) {}, "", "--node-name"},
		"no namespace":  {func(f *clusterFlags) { f.namespace = "" }, "n1", "--namespace"},
		"asked":         {func(f *clusterFlags) { f.companionPorts = "Asked" }, "n1", ""},
		"an odd word":   {func(f *clusterFlags) { f.companionPorts = "Sometimes" }, "n1", `--companion-ports: "Sometimes" does not say`},
		"another case":  {func(f *clusterFlags) { f.companionPorts = "never" }, "n1", "write Never, Asked or Always"},
		"no DaemonSet":  {func(f *clusterFlags) { f.daemonSet = "" }, "n1", "--daemonset"},
		"an odd letter": {func(f *clusterFlags) { f.companionPorts = "Always " }, "n1", "--companion-ports"},
	} {
		f := whole
		c.change(&f)
		err := f.missing(c.node)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestEnforcing: what an agent tells the cluster is whether all that it knows is in force.
func TestEnforcing(t *testing.T) {
	h := newHealth(time.Now)
	for i, step := range []struct {
		change func(*health)
		want   bool
	}{
		{func(*health) {}, false},
		{func(h *health) { h.synced, h.active = true, time.Now() }, false},
		{func(h *health) { h.inForce = true }, true},
		{func(h *health) { h.failing = "no memory" }, false},
		{func(h *health) { h.failing = "" }, true},
	} {
		h.set(step.change)
		if got := h.enforcing(); got != step.want {
			t.Errorf("%d: %v", i, got)
		}
	}
}

func TestBootID(t *testing.T) {
	id := bootID()
	if len(id) != 36 || id != strings.TrimSpace(id) {
		t.Errorf("%q", id)
	}
}
