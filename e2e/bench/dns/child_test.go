package main

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/bench/child"
	"github.com/namegate/namegate/e2e/bench/ground"
	"github.com/namegate/namegate/e2e/bench/load"
	"github.com/namegate/namegate/e2e/bench/process"
	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestMain lets the test's own program be the fake servers.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == serveWord {
		os.Exit(serve(os.Args[2], os.Args[3]))
	}
	os.Exit(m.Run())
}

// newTestLab is a node with the benchmark's pods.
func newTestLab(t *testing.T) *lab.Lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes network namespaces")
	}
	l, err := newLab()
	fatal.If(t, err)
	t.Cleanup(func() {
		if err := l.Remove(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// A pod asks the upstream behind the node, and an echo on the node; what they cost
// is theirs alone.
func TestMeasuredChildren(t *testing.T) {
	l := newTestLab(t)
	fatal.If(t, l.Node.IP("addr", "add", peerAddr.String()+"/32", "dev", "lo", "scope", "host"))
	b := &bench{Ground: &ground.Ground{Context: context.Background()}, gates: map[manner]*gate{}}
	pod := l.Pod(client).Host
	for which, server := range map[string]struct {
		host *lab.Host
		at   netip.AddrPort
	}{
		"upstream": {l.World, netip.AddrPortFrom(lab.Resolver4, 53)},
		"echo":     {l.Node, netip.AddrPortFrom(peerAddr, 5301)},
	} {
		c, err := child.Self(server.host, t.TempDir(), which, serveWord, which, server.at.String())
		fatal.If(t, err)
		at := target{name: which, pid: c.PID(), pod: pod, at: server.at}
		fatal.If(t, b.wake(at))
		m, err := b.measure(at)
		fatal.If(t, err)
		began, err := process.CPU(at.pid)
		fatal.If(t, err)
		for used := began; used == began; { // the kernel counts in ticks of 10 ms
			r, err := b.load(at, load.Plan{Rate: 1000, Count: 500, Name: newName, Patience: 20 * time.Second})
			if err != nil || r.Lost > 0 || r.Bad > 0 {
				t.Fatalf("%s: %s, %v", which, brief(r), err)
			}
			used, err = process.CPU(at.pid)
			fatal.If(t, err)
		}
		if server, others, err := m.end(0); err != nil || server <= 0 || server > time.Minute || others < 0 {
			t.Errorf("%s took %v, others %v, %v", which, server, others, err)
		}
		if err := c.Failed(); err != nil {
			t.Error(err)
		}
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
		if _, err := process.CPU(at.pid); err == nil {
			t.Errorf("%s is stopped and still there", which)
		}
		if _, err := b.measure(at); err == nil || !strings.Contains(err.Error(), which) {
			t.Errorf("measuring what is gone: %v", err)
		}
	}
}

// A server that ends at once is named, with what it printed.
func TestChildThatFails(t *testing.T) {
	l := newTestLab(t)
	c, err := child.Self(l.Node, t.TempDir(), "echo", serveWord, "echo", "192.0.2.1:53")
	fatal.If(t, err)
	b := &bench{Ground: &ground.Ground{Context: context.Background()}, peers: &peers{children: []*child.Child{c}, upstream: c}}
	err = b.wake(target{name: "echo", pod: l.Pod(client).Host, at: netip.MustParseAddrPort("192.0.2.1:53")})
	if err == nil || !strings.Contains(err.Error(), "echo ended") || !strings.Contains(err.Error(), "192.0.2.1:53") {
		t.Errorf("a server that failed: %v", err)
	}
	if err := c.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := child.Spawn(l.Node, t.TempDir(), "none", filepath.Join(t.TempDir(), "none")); err == nil || !strings.Contains(err.Error(), "start none") {
		t.Errorf("a program that is not there: %v", err)
	}
}

func TestSampleSays(t *testing.T) {
	if got := (sample{cpu: 5.51, qps: 20000, bad: 0.001, others: 0.5}).String(); got != "5.5 µs, 20000 q/s, without a good answer 0.10 %, others took 50 % of a core" {
		t.Error(got)
	}
}
