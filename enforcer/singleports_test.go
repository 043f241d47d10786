package enforcer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/dataplane/xtables"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
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
		if w.dials("10.1.0.5", "192.0.2.1", port) != want {
			t.Errorf("port %d is open: %v", port, !want)
		}
	}
	first, second := flow("10.1.0.5:1001", "192.0.2.1:80"), flow("10.1.0.5:1002", "192.0.2.1:443")
	w.flows.Track(first)
	w.flows.Track(second)
	rules := w.chains.Dump(4, "mangle")
	w.apply([]policy.Pod{p}, pol("allow", "tcp/443 www.example.org", "udp/443 www.example.org", "tcp/8000-8001 www.example.org"))
	if want := []string{"tcp/443 192.0.2.1", "udp/443 192.0.2.1"}; !slices.Equal(w.opened(p), want) {
		t.Errorf("without a port open %v, want %v", w.opened(p), want)
	}
	if w.admitted(first) || !w.admitted(second) {
		t.Error("the connection to the port that went must be cut, the other not")
	}
	if again := w.chains.Dump(4, "mangle"); again != rules {
		t.Errorf("a port less changed the chains:\n%s", again)
	}
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
	first, second := flow("10.1.0.5:1001", "192.0.2.1:80"), flow("10.1.0.5:1002", "192.0.2.1:443")
	w.flows.Track(first)
	w.flows.Track(second)
	w.restart()
	w.apply([]policy.Pod{p}, pol("allow", "tcp/443 www.example.org"))
	if want := []string{"tcp/443 192.0.2.1"}; !slices.Equal(w.opened(p), want) {
		t.Errorf("open %v, want %v", w.opened(p), want)
	}
	if w.admitted(first) || !w.admitted(second) {
		t.Error("the connection to the port that went must be cut, the other not")
	}
}

// earlierSet is the name of a pod's set of a single port in the earlier layout.
func earlierSet(p policy.Pod, ports policy.PortSet, f iptables.Family) string {
	sum := sha256.Sum256([]byte(ports))
	return setPrefix(f) + dataplane.PodID(p.PodRef) + "-" + hex.EncodeToString(sum[:])[:8]
}

// toEarlierLayout gives a pod's single ports sets of their own, and rules that ask them, as
// agents had of before they shared one.
func (w *world) toEarlierLayout(p policy.Pod, ports ...policy.PortSet) {
	w.t.Helper()
	for _, f := range ipVersions {
		var rules []string
		for _, s := range ports {
			protocol, port, _ := s.Single()
			rules = append(rules, strings.NewReplacer("PROTO", protocol.String(), "PORT", s.Ranges()[0].String()[4:], "SET", earlierSet(p, s, f)).
				Replace("-p PROTO -m PROTO --dport PORT -m set --match-set SET dst -g NAMEGATE-NAMED"))
			fatal.If(w.t, w.sets.Ensure(ipset.Set{Name: earlierSet(p, s, f), Type: ipset.HashIP, IPv6: f == iptables.IPv6, Timeout: true, Comment: true}))
			for _, e := range w.entries(p, s, f) {
				if e.Protocol != uint8(protocol) || e.Port != port {
					w.t.Fatal(e)
				}
				e.Protocol, e.Port = 0, 0
				fatal.If(w.t, w.sets.Add(earlierSet(p, s, f), e))
			}
		}
		tx := iptables.NewTransaction(f, "mangle")
		tx.Replace("NAMEGATE-P-"+dataplane.PodID(p.PodRef), rules...)
		fatal.If(w.t, w.chains.Restore(context.Background(), tx))
		shared := xtables.GrantSetName(p.PodRef, https, f)
		w.sets.Refer(shared, false)
		fatal.If(w.t, w.sets.Destroy(shared))
	}
}

// earlierAnswered is a pod with grants of an agent of the earlier layout, and its policy.
func earlierAnswered(t *testing.T) (*world, policy.Pod, func()) {
	w := newWorld(t)
	p := pod("web", "10.1.0.5 2001:db8:1::5", "allow")
	apply := func() {
		w.apply([]policy.Pod{p}, pol("allow", "tcp/443 www.example.org mail.test", "tcp/80 www.example.org", "tcp/8000-8001 mail.test"))
	}
	apply()
	w.answer(p, "www.example.org", 60, "192.0.2.1 2001:db8::1")
	w.toEarlierLayout(p, https, "tcp/80")
	return w, p, apply
}

// TestEarlierSetsAreTakenOver with their grants, without a moment in which what is granted is
// closed, and nothing of them is left.
func TestEarlierSetsAreTakenOver(t *testing.T) {
	t.Parallel()
	for n := 0; ; n++ { // a step fails
		w, p, apply := earlierAnswered(t)
		outlived := flow("10.1.0.5:1001", "192.0.2.9:443") // of a grant that has ended
		w.flows.Track(outlived)
		w.restart()
		s := w.compile([]policy.Pod{p}, pol("allow", "tcp/443 www.example.org mail.test", "tcp/80 www.example.org", "tcp/8000-8001 mail.test"))
		w.seams.before = func(step string) {
			if !w.dials("10.1.0.5", "192.0.2.1", 443) || !w.dials("10.1.0.5", "192.0.2.1", 80) || w.dials("10.1.0.5", "192.0.2.1", 8443) {
				t.Fatalf("a granted port is closed, or another open, before %s", step)
			}
		}
		w.seams.forget(n, false)
		failed := w.rollOut(s)
		over := w.seams.steps < n
		w.seams.forget(0, false)
		if failed != nil {
			apply()
		}
		w.seams.before = nil
		if want := []string{"tcp/443 192.0.2.1", "tcp/80 192.0.2.1"}; !slices.Equal(w.opened(p), want) {
			t.Fatalf("step %d fails: open %v, want %v", n, w.opened(p), want)
		}
		if !near(w.left(p, https, "2001:db8::1"), 120*time.Second) || w.e.Status().Grants != 4 {
			t.Fatalf("step %d fails: %d grants, one with %v", n, w.e.Status().Grants, w.left(p, https, "2001:db8::1"))
		}
		names, _ := w.sets.Names()
		if slices.Contains(names, earlierSet(p, https, 4)) || slices.Contains(names, earlierSet(p, "tcp/80", 6)) {
			t.Fatalf("step %d fails: an earlier set is left in %v", n, names)
		}
		if !w.admitted(outlived) {
			t.Fatalf("step %d fails: a connection that outlived its grant is cut", n)
		}
		if over {
			break
		}
	}
}

// TestEarlierAgentGrantsAtLast: until it is gone rules ask its sets too, what is taken back
// is taken back there too, and its last grants are taken over.
func TestEarlierAgentGrantsAtLast(t *testing.T) {
	t.Parallel()
	w, p, apply := earlierAnswered(t)
	_, end := overlap(t, w, apply)
	own := earlierSet(p, https, iptables.IPv4)
	deadline := w.clock.Now().Add(600 * time.Second).Unix()
	late := func(a, comment string) {
		fatal.If(t, w.sets.Add(own, ipset.Entry{Addr: addr(a), Timeout: 600*time.Second + DefaultHold, Comment: comment}))
	}
	if w.dials("10.1.0.5", "192.0.2.2", 443) {
		t.Fatal("open before it is granted")
	}
	late("192.0.2.2", fmt.Sprintf("%d %s", deadline, "mail.test"))
	late("192.0.2.3", fmt.Sprintf("%d %s", deadline, "www.example.com"))
	w.answer(p, "www.example.org", 120, "192.0.2.1")
	w.reconcile()
	if !w.dials("10.1.0.5", "192.0.2.2", 443) || !w.dials("10.1.0.5", "192.0.2.1", 80) || w.dials("10.1.0.5", "192.0.2.2", 80) {
		t.Error("what the first agent grants at last is closed, or open on another port")
	}
	if !w.awaits() {
		t.Error("the first agent is not awaited")
	}
	end()
	if w.awaits() {
		t.Error("the first agent is gone, and awaited")
	}
	if want := []string{"tcp/443 192.0.2.1", "tcp/443 192.0.2.2", "tcp/80 192.0.2.1"}; !slices.Equal(w.opened(p), want) {
		t.Errorf("open %v, want %v", w.opened(p), want)
	}
	names, _ := w.sets.Names()
	if slices.Contains(names, own) || strings.Contains(w.chains.Dump(4, "mangle"), own) {
		t.Errorf("the earlier set is left in %v", names)
	}
	w.expire(200 * time.Second)
	if w.left(p, https, "192.0.2.1") != 0 || w.left(p, https, "192.0.2.2") == 0 {
		t.Error("grants do not end at their own deadlines")
	}
}

// TestTakenBackFromEarlierSets while the first agent is there still.
func TestTakenBackFromEarlierSets(t *testing.T) {
	t.Parallel()
	w, p, apply := earlierAnswered(t)
	_, end := overlap(t, w, apply)
	w.apply([]policy.Pod{p}, pol("allow", "tcp/443 mail.test", "tcp/80 www.example.org"))
	if w.dials("10.1.0.5", "192.0.2.1", 443) || !w.dials("10.1.0.5", "192.0.2.1", 80) {
		t.Error("what a policy allows no more is open, or the rest closed")
	}
	end()
	if w.awaits() || w.dials("10.1.0.5", "192.0.2.1", 443) || !w.dials("10.1.0.5", "192.0.2.1", 80) {
		t.Error("after the first agent what a policy allows no more is open, or the rest closed")
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
	fatal.If(t, first.grants.Grant(context.Background(), last))
	end()
	if w.awaits() {
		t.Error("the first agent is gone, and awaited")
	}
	if want := []string{"tcp/443 192.0.2.1", "tcp/443 192.0.2.2"}; !slices.Equal(w.opened(p), want) {
		t.Errorf("open %v, want %v", w.opened(p), want)
	}
}
