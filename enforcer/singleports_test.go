package enforcer

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/namegate/namegate/enforcer/dataplane/xtables"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/granttest"
)

// opened returns the entries of a pod's IPv4 set of single ports, sorted.
func (w *world) opened(p policy.Pod) (out []string) {
	w.t.Helper()
	es, err := w.sets.List(xtables.GrantSetName(p.PodRef, https, iptables.IPv4))
	fatal.If(w.t, err)
	for _, e := range es {
		out = append(out, policy.PortRange{Protocol: policy.Protocol(e.Protocol), First: e.Port, Last: e.Port}.String()+" "+e.Addr.String())
	}
	slices.Sort(out)
	return out
}

// TestSinglePortsShareASet: each has its own grants, and a port that no policy has any more
// leaves those of the others.
func TestSinglePortsShareASet(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := pod("web", "10.1.0.5", "allow")
	all := pol("allow", "tcp/443 www.example.org", "tcp/80 www.example.org", "udp/443 www.example.org", "tcp/8000-8001 www.example.org")
	w.apply([]policy.Pod{p}, all)
	w.answer(p, "www.example.org", 60, "192.0.2.1")
	if want := []string{"tcp/443 192.0.2.1", "tcp/80 192.0.2.1", "udp/443 192.0.2.1"}; !slices.Equal(w.opened(p), want) {
		t.Errorf("open %v, want %v", w.opened(p), want)
	}
	for port, want := range map[uint16]bool{443: true, 80: true, 8001: true, 81: false} {
		diff.Equal(t, want, w.dials("10.1.0.5", "192.0.2.1", port), "port", port, "is open")
	}
	first, second := w.track("10.1.0.5:1001", "192.0.2.1:80"), w.track("10.1.0.5:1002", "192.0.2.1:443")
	rules := w.chains.Dump(4, "mangle")
	w.apply([]policy.Pod{p}, pol("allow", "tcp/443 www.example.org", "udp/443 www.example.org", "tcp/8000-8001 www.example.org"))
	if want := []string{"tcp/443 192.0.2.1", "udp/443 192.0.2.1"}; !slices.Equal(w.opened(p), want) {
		t.Errorf("without a port open %v, want %v", w.opened(p), want)
	}
	if w.admitted(first) || !w.admitted(second) {
		t.Error("the connection to the port that went must be cut, the other not")
	}
	diff.Error(t, rules, w.chains.Dump(4, "mangle"), "a port less changed the chains")
	before := w.e.repairs.Load()
	w.reconcileMembers()
	if n := w.e.repairs.Load() - before; n > 0 {
		t.Errorf("%d repairs although no other program has changed a set", n)
	}
	w.apply([]policy.Pod{p}, pol("allow", "tcp/8000-8001 www.example.org"))
	if es, err := w.sets.List(xtables.GrantSetName(p.PodRef, https, 4)); !ipset.IsNotFound(err) {
		t.Errorf("the set of no port is there: %v, %v", es, err)
	}
}

// TestRestartWithoutAPort: what an earlier agent left for a port that no policy has any more
// is closed, and its connections are cut.
func TestRestartWithoutAPort(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := pod("web", "10.1.0.5", "allow")
	w.apply([]policy.Pod{p}, pol("allow", "tcp/443 www.example.org", "tcp/80 www.example.org"))
	w.answer(p, "www.example.org", 60, "192.0.2.1")
	first, second := w.track("10.1.0.5:1001", "192.0.2.1:80"), w.track("10.1.0.5:1002", "192.0.2.1:443")
	w.restart()
	w.apply([]policy.Pod{p}, pol("allow", "tcp/443 www.example.org"))
	if want := []string{"tcp/443 192.0.2.1"}; !slices.Equal(w.opened(p), want) {
		t.Errorf("open %v, want %v", w.opened(p), want)
	}
	if w.admitted(first) || !w.admitted(second) {
		t.Error("the connection to the port that went must be cut, the other not")
	}
}

// TestLastGrantsOnAPortThatGoes: what the first agent grants at last, on a port that the
// policies of the second do not have, is removed.
func TestLastGrantsOnAPortThatGoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := pod("web", "10.1.0.5", "allow")
	w.apply([]policy.Pod{p}, pol("allow", "tcp/443 www.example.org", "tcp/80 www.example.org"))
	w.answer(p, "www.example.org", 60, "192.0.2.1")
	last := w.grants(w.snap, p.PodRef, "www.example.org", 600, "192.0.2.2")
	first, end := overlap(t, w, func() { w.apply([]policy.Pod{p}, pol("allow", "tcp/443 www.example.org")) })
	fatal.If(t, granttest.Grant(context.Background(), first.grants, last))
	end()
	if want := []string{"tcp/443 192.0.2.1", "tcp/443 192.0.2.2"}; !slices.Equal(w.opened(p), want) {
		t.Errorf("open %v, want %v", w.opened(p), want)
	}
}

// TestRefusedSets: a set that the kernel refuses holds up no snapshot. What it is for alone is closed, which is
// reported, until the kernel takes it.
func TestRefusedSets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	client, other := pod("client", "10.1.0.5", "allow"), pod("other", "10.1.0.6", "allow")
	s := w.compile([]policy.Pod{client, other}, pol("allow", "tcp/443 www.example.org"))
	w.seams.refuse = "ensure " + xtables.GrantSetName(client.PodRef, https, iptables.IPv4)
	w.prepare(s)
	if err := w.e.Commit(context.Background()); err != nil || w.e.snapshot != s || w.e.complete {
		t.Errorf("a set is refused, and the snapshot is in force: %v, complete: %v, %v", w.e.snapshot == s, w.e.complete, err)
	}
	w.snap = s
	if err := w.e.compare(context.Background(), true, true); !errors.Is(err, errInjected) || w.e.drift.since(w.clock.Now(), 0) == nil {
		t.Errorf("a set is refused, and the comparison says %v", err)
	}
	granted := func(p policy.Pod) error {
		return granttest.Grant(context.Background(), w.e.grants, w.grants(s, p.PodRef, "www.example.org", 60, "192.0.2.1"))
	}
	if err := granted(client); err == nil || w.dials("10.1.0.5", "192.0.2.1", 443) {
		t.Errorf("a set is refused, and an answer is granted: %v", err)
	}
	if err := granted(other); err != nil || !w.dials("10.1.0.6", "192.0.2.1", 443) {
		t.Errorf("a set of another pod is refused: %v", err)
	}
	w.seams.refuse = ""
	w.reconcile()
	if err := granted(client); err != nil || !w.dials("10.1.0.5", "192.0.2.1", 443) {
		t.Errorf("the set is taken at last: %v", err)
	}
}

// TestSetsThatCannotBeRepaired: a set that another program changed, and that the kernel does not let repair, holds up
// no roll-out. Its pod is closed on its ports, which is reported, until it is repaired.
func TestSetsThatCannotBeRepaired(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	client, other := pod("client", "10.1.0.5", "allow"), pod("other", "10.1.0.6", "allow")
	w.apply([]policy.Pod{client, other}, pol("allow", "tcp/443 www.example.org"))
	w.answer(client, "www.example.org", 600, "192.0.2.1")
	set := xtables.GrantSetName(client.PodRef, https, iptables.IPv4)
	fatal.If(t, w.sets.Add(set, httpsEntry(addr("203.0.113.9"))))
	fatal.If(t, w.flush("NG4-selected"))
	w.seams.refuse = "delete " + set
	for _, want := range []uint64{1, 1} { // NG4-selected is restored once
		if err := w.e.compare(context.Background(), true, true); !errors.Is(err, errInjected) || w.e.repairs.Load() != want {
			t.Errorf("a set is not repaired, and the comparison says %v after %d repairs, want %d", err, w.e.repairs.Load(), want)
		}
	}
	s := w.compile([]policy.Pod{client, other}, pol("allow", "tcp/443 www.example.org *.example.net"))
	w.prepare(s)
	if err := w.e.Commit(context.Background()); err != nil || w.e.snapshot != s {
		t.Errorf("a set is not repaired, and the snapshot is in force: %v, %v", w.e.snapshot == s, err)
	}
	if err := w.e.compare(context.Background(), true, true); !errors.Is(err, errInjected) {
		t.Errorf("a set is not repaired after the Commit, and the comparison says %v", err)
	}
	w.snap = s
	w.answer(other, "a.example.net", 600, "192.0.2.2")
	if !w.dials("10.1.0.6", "192.0.2.2", 443) || w.dials("10.1.0.5", "203.0.113.9", 443) {
		t.Error("the neighbour's answers do not open, or the pod reaches what another program opened")
	}
	w.seams.refuse = ""
	w.reconcileMembers()
	if w.dials("10.1.0.5", "203.0.113.9", 443) || !w.dials("10.1.0.5", "192.0.2.1", 443) {
		t.Error("the set is not repaired at last")
	}
}
