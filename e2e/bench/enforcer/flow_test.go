package main

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/bench/ground"
	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// newTestNode is a node with the benchmark's pods.
func newTestNode(t *testing.T, links bool) (*bench, *node) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes network namespaces")
	}
	b := &bench{options{span: 100 * time.Millisecond, rounds: 1}, &ground.Ground{Context: context.Background(), Dir: t.TempDir(), Notes: os.Stderr}}
	n, err := b.newNode("test", clientNumber, links)
	fatal.If(t, err)
	t.Cleanup(func() {
		if err := n.remove(); err != nil {
			t.Error(err)
		}
	})
	return b, n
}

// The client's connections and bytes arrive and are counted; through the linear rules
// only on the ports that they allow.
func TestTrafficIsCounted(t *testing.T) {
	b, n := newTestNode(t, true)
	count := func(m measured) float64 {
		t.Helper()
		rate, cpu, err := b.push(n, m)
		for until := time.Now().Add(time.Minute); err == nil && !(rate.Value > 0) && time.Now().Before(until); {
			rate, cpu, err = b.push(n, m) // on a busy machine nothing may happen in so short a time
		}
		fatal.If(t, err)
		if cpu.Value <= 0 {
			t.Errorf("%s: %v us of processor time", m.figure, cpu.Value)
		}
		return rate.Value
	}
	fatal.If(t, n.track())
	for _, m := range traffic {
		if v := count(m); v <= 0 {
			t.Errorf("%s: %v without rules", m.figure, v)
		}
	}
	tracked, err := n.Node.Run("sysctl", "-n", "net.netfilter.nf_conntrack_count")
	fatal.If(t, err)
	if strings.TrimSpace(tracked) == "0" {
		t.Error("the kernel tracks no connection of the node without rules")
	}
	fatal.If(t, n.layLinear(chosen(10)))
	for _, m := range traffic {
		if v := count(m); v <= 0 {
			t.Errorf("%s: %v through the linear rules", m.figure, v)
		}
	}
	for port, want := range map[uint16]lab.Outcome{uint16(portOf(portSets)): lab.Refused, sinkPort + 1: lab.Silent} {
		if got := n.Pod(client).ProbeFor("tcp", netip.AddrPortFrom(target4, port), lab.PatienceFor(want)); got != want {
			t.Errorf("port %d through the linear rules: %s, want %s", port, got, want)
		}
	}
	if err := n.layLinear(chosen(1)); err != nil {
		t.Fatalf("replacing the linear rules: %v", err)
	}
	closed := traffic[0]
	closed.port = portOf(portSets)
	if _, _, err := b.push(n, closed); err == nil || !strings.Contains(err.Error(), "connect to 198.51.100.10") {
		t.Errorf("a port that is closed: %v", err)
	}
}

// A new connection asks the rules of all Services once.
func TestServicesAreAsked(t *testing.T) {
	b, n := newTestNode(t, false)
	fatal.If(t, n.layServices())
	if rate, _, err := b.push(n, traffic[1]); err != nil || rate.Value <= 0 {
		t.Errorf("%v requests a second, %v", rate.Value, err)
	}
	saved, err := n.Node.Run("iptables-save", "-c", "-t", "nat")
	fatal.If(t, err)
	if asked := regexp.MustCompile(`\[[1-9]\d*:\d+\] -A PREROUTING -j KUBE-SERVICES`); !asked.MatchString(saved) {
		t.Error("no connection asked for Services")
	}
	if rules := strings.Count(saved, "-A KUBE-SERVICES -d "); rules != services {
		t.Errorf("%d Services, want %d", rules, services)
	}
}

// All pods' addresses can be those of one host, and each asks for itself.
func TestImpersonation(t *testing.T) {
	_, n := newTestNode(t, false)
	var err error
	if n.world, err = n.ServeWorld(scattered); err != nil {
		t.Fatal(err)
	}
	for _, pod := range []int{0, clientNumber, maxPods - 1} {
		if err := n.askAll(pod, 5); err != nil {
			t.Errorf("pod %d: %v", pod, err)
		}
	}
	asked := map[string]bool{}
	for _, q := range n.world.Asked() {
		asked[q] = true
	}
	if len(asked) != 3*2*5 {
		t.Errorf("%d questions arrived, want %d", len(asked), 3*2*5)
	}
}

// What changes rules refuses to do so outside a namespace of its own.
func TestApplyStaysWithinItsNamespace(t *testing.T) {
	here, err := os.Readlink(ownNetwork)
	fatal.If(t, err)
	if err := applyChild(here, 1, os.Stderr); err == nil || !strings.Contains(err.Error(), "namespace of its own") {
		t.Errorf("in the namespace of whoever started it: %v", err)
	}
}

func TestChosen(t *testing.T) {
	for _, n := range []int{1, 2, 10, 110, 249, maxPods} {
		seen := map[int]bool{}
		for _, i := range chosen(n) {
			if i < 0 || i >= maxPods || seen[i] {
				t.Fatalf("%d pods: %d", n, i)
			}
			seen[i] = true
		}
		if len(seen) != n || !seen[clientNumber] {
			t.Errorf("%d pods: %d are chosen, the client %t", n, len(seen), seen[clientNumber])
		}
	}
}

func TestRolesReportErrors(t *testing.T) {
	for _, args := range [][]string{{"sink", "none"}, {"connect", "nowhere", "1s", "1"}, {"stream", "192.0.2.1:1", "soon", "1"}, {"connect", "192.0.2.1:1", "1s", "many"}, {"apply", "net:[1]", "often"}} {
		if code := act(roles[args[0]], args[1:]); code != 2 {
			t.Errorf("%v: %d", args, code)
		}
	}
	fails := func([]string) error { return errors.New("failed") }
	if act(fails, nil) != 2 || act(func([]string) error { return nil }, nil) != 0 {
		t.Error("the status does not say whether a child failed")
	}
}

func TestMissingNode(t *testing.T) {
	b := &bench{options{}, &ground.Ground{Context: context.Background(), Dir: filepath.Join(t.TempDir(), "file")}}
	fatal.If(t, os.WriteFile(b.Dir, nil, 0o600))
	if _, err := b.newNode("test", 0, true); err == nil {
		t.Error("a node without a folder")
	}
}
