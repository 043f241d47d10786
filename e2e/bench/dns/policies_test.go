package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/namegate/namegate/e2e/bench/fake"
	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/source/manifest"
	"github.com/namegate/namegate/testkit/fatal"
)

func snapshot(t *testing.T) *policy.Snapshot {
	t.Helper()
	dir := t.TempDir()
	for name, text := range manifests(pods()) {
		fatal.If(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	state, err := manifest.Read(dir)
	if err != nil || len(state.FileErrors) > 0 || len(state.Problems) > 0 {
		t.Fatalf("%v, %v, %v", err, state.FileErrors, state.Problems)
	}
	if len(state.Input.Policies) < 50 {
		t.Errorf("%d policies are no real namespace", len(state.Input.Policies))
	}
	s := compile.New().Compile(state.Input)
	if len(s.Problems) > 0 {
		t.Fatal(s.Problems)
	}
	return s
}

func pods() map[string]*lab.Pod {
	return map[string]*lab.Pod{
		client:    {Host: &lab.Host{Name: "a"}, Addr4: netip.MustParseAddr("10.1.0.10"), Addr6: netip.MustParseAddr("fd00:1::a")},
		neighbour: {Host: &lab.Host{Name: "b"}, Addr4: netip.MustParseAddr("10.1.0.11"), Addr6: netip.MustParseAddr("fd00:1::b")},
	}
}

func TestPolicies(t *testing.T) {
	s := snapshot(t)
	for _, addr := range []string{"10.1.0.10", "10.1.0.11"} {
		v := s.View(netip.MustParseAddr(addr))
		if v == nil {
			t.Fatalf("no policy selects %s", addr)
		}
		for name, lifetime := range map[string]float64{
			"c17." + fake.KeptZone: 3060, newName(0): 2, newName(1): 2, newName(2): 2, newName(3): 2, newName(123_457): 2,
		} {
			n, err := fqdn.ParseName(name)
			fatal.If(t, err)
			ttl := uint32(1)
			if lifetime > 2 {
				ttl = 3000
			}
			open := v.Decide(n).Openings(ttl)
			if len(open) != 1 || open[0].Lifetime.Seconds() != lifetime {
				t.Errorf("%s opens %v, want one port set for %v s", name, open, lifetime)
			}
		}
		for _, name := range []string{"x." + fake.NewZone, fake.KeptZone, "www.example.org"} {
			n, err := fqdn.ParseName(name)
			fatal.If(t, err)
			if v.Decide(n).Allowed() {
				t.Errorf("%s is allowed; the patterns are too wide", name)
			}
		}
	}
}

// New names are spread over several port sets, as one set alone would be full.
func TestNewNamesSpread(t *testing.T) {
	v := snapshot(t).View(netip.MustParseAddr("10.1.0.10"))
	sets := map[policy.PortSet]int{}
	for i := range 400 {
		n, err := fqdn.ParseName(newName(i))
		fatal.If(t, err)
		sets[v.Decide(n).Openings(1)[0].Ports]++
	}
	if len(sets) != newZones {
		t.Errorf("%d port sets, want %d: %v", len(sets), newZones, sets)
	}
	for set, count := range sets {
		if count != 400/newZones {
			t.Errorf("%v has %d of 400 names", set, count)
		}
	}
}
