package main

import (
	"context"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/source/manifest"
	"github.com/namegate/namegate/testkit/fatal"
)

const examples = "../../examples"

// read returns what a folder of manifests holds, and fails the test where it
// holds what cannot work.
func read(t *testing.T, dir string) manifest.State {
	t.Helper()
	source, err := manifest.New(dir, "", slog.New(slog.DiscardHandler))
	fatal.If(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var state manifest.State
	fatal.If(t, source.Run(ctx, func(s manifest.State) { state = s; cancel() }))
	for _, e := range state.FileErrors {
		t.Errorf("%s: %s", e.File, e.Reason)
	}
	for _, p := range append(state.Problems, compile.New().Compile(state.Input).Problems...) {
		t.Errorf("%s: %s %s", p.Object, p.Path, p.Message)
	}
	return state
}

// compiled is the snapshot of the example manifests.
func compiled(t *testing.T) *policy.Snapshot {
	t.Helper()
	return compile.New().Compile(read(t, filepath.Join(examples, "manifests")).Input)
}

func TestExamplePodsAreTheLabs(t *testing.T) {
	snap := compiled(t)
	if got := len(snap.Pods()); got != len(podNumbers) {
		t.Errorf("%d pods, want %d", got, len(podNumbers))
	}
	for name, n := range podNumbers {
		v4 := netip.AddrFrom4([4]byte{10, 1, 0, byte(n)})
		p, ok := snap.Pod(v4)
		if !ok || p.Name != name {
			t.Errorf("%s is pod %q, want %q", v4, p.Name, name)
		}
	}
}

func TestExamplePolicies(t *testing.T) {
	snap := compiled(t)
	for _, c := range []struct {
		pod, name, want string
	}{
		{client, listedName, "shop/allow-web"},
		{client, feedName, "shop/allow-feed"},
		{client, unlistedName, ""},
		{client, "example.org", ""},
		{neighbour, listedName, "shop/allow-web"},
		{neighbour, feedName, ""},
	} {
		v := snap.View(netip.AddrFrom4([4]byte{10, 1, 0, byte(podNumbers[c.pod])}))
		if v == nil {
			t.Fatalf("pod %s is not selected", c.pod)
		}
		n, err := fqdn.ParseName(c.name)
		fatal.If(t, err)
		var by []string
		for _, m := range v.Decide(n).Matches {
			by = append(by, m.Policy)
		}
		if got := strings.Join(by, " "); got != c.want {
			t.Errorf("%s asks for %s: %q, want %q", c.pod, c.name, got, c.want)
		}
	}
	if v := snap.View(netip.AddrFrom4([4]byte{10, 1, 0, byte(podNumbers[visitor])})); v != nil {
		t.Errorf("%s is selected", visitor)
	}
}

func TestExampleCorefile(t *testing.T) {
	c, err := corefile.Load(filepath.Join(examples, "Corefile"))
	fatal.If(t, err)
	if c.Audit.Path != auditPath {
		t.Errorf("the audit log is %q, and the demo replaces %q", c.Audit.Path, auditPath)
	}
}

func TestManifestsMissing(t *testing.T) {
	if _, err := manifests(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("no error for a folder that does not exist")
	}
}
