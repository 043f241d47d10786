package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/enforcer/intercept"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/failsafe"
	"github.com/namegate/namegate/proxy"
	"github.com/namegate/namegate/status"
	"github.com/namegate/namegate/testkit/policytest"
)

func addrList(words string) (out []netip.Addr) {
	for w := range strings.FieldsSeq(words) {
		out = append(out, netip.MustParseAddr(w))
	}
	return out
}

// nodeUnder compiles a snapshot of the node n1 with a policy's rules.
func nodeUnder(t *testing.T, spec string) *policy.Snapshot {
	t.Helper()
	p := policytest.NodePolicy(t, "host", "{nodeSelector: {}, priority: 1, "+spec+"}")
	return compile.New().Compile(compile.Input{NodePolicies: []*v1alpha1.NodeNetworkPolicy{p}, Node: &policy.Node{Name: "n1", Interfaces: []string{"eth0"}}})
}

const byName = "egress: [{action: Accept, matches: [{name: a.test}]}, {action: Deny}]"

// loopFake are resolvers: those in back lead back to themselves, those in silent do not answer.
type loopFake struct {
	mu           sync.Mutex
	back, silent map[netip.Addr]bool
	fails        error
	asked        []netip.Addr
	changes      int
}

func (f *loopFake) test(_ context.Context, r netip.Addr) (back []netip.Addr, answered bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, r)
	if f.back[r] {
		back = append(back, r)
	}
	return back, !f.silent[r] && f.fails == nil, f.fails
}

func (f *loopFake) change() { f.changes++ }

// TestWhichResolversAreIntercepted follows policies, resolvers and the tests of these.
func TestWhichResolversAreIntercepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loops := netip.MustParseAddr("198.51.100.2")
		f := &loopFake{back: map[netip.Addr]bool{loops: true}, silent: map[netip.Addr]bool{}}
		h := newHostDNS(f.test, f.change, time.Now, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { h.run(ctx); close(done) }()
		defer func() { cancel(); <-done }()
		expect := func(when string, nodeDNS bool, resolvers string) {
			t.Helper()
			synctest.Wait()
			var n intercept.Network
			h.addTo(&n)
			if n.NodeDNS != nodeDNS || !slices.Equal(n.HostResolvers, addrList(resolvers)) {
				t.Errorf("%s: %v %v, want %v %s", when, n.NodeDNS, n.HostResolvers, nodeDNS, resolvers)
			}
		}
		h.setResolvers(addrList("127.0.0.53 fe80::1 198.51.100.1 198.51.100.2 169.254.20.64 ::1 198.51.100.1 2001:db8::1 0.0.0.0"))
		expect("without a policy", false, "")
		if h.follow(nodeUnder(t, "egress: [{action: Deny}]")) {
			t.Error("a policy without names wants names")
		}
		snap := nodeUnder(t, byName)
		if !h.follow(snap) || h.follow(snap) {
			t.Error("a policy with names is no change, or one twice")
		}
		expect("before the rules are in force", true, "")
		if len(f.asked) != 0 {
			t.Errorf("asked %v before the rules are in force", f.asked)
		}
		h.setSettled(true)
		expect("after the tests", true, "198.51.100.1 2001:db8::1")
		if f.changes != 3 {
			t.Errorf("%d changes", f.changes)
		}
		found := h.findings(snap, nil)
		if len(found) != 1 || found[0].Reason != status.ResolverLoop || found[0].Policy != "nodenetworkpolicy:host" || !strings.Contains(found[0].Message, loops.String()) {
			t.Errorf("findings %+v", found)
		}
		// The loop ends, and is tested again.
		f.mu.Lock()
		f.back = map[netip.Addr]bool{}
		f.mu.Unlock()
		time.Sleep(loopRetest)
		expect("after the loop's end", true, "198.51.100.1 198.51.100.2 2001:db8::1")
		if found := h.findings(snap, nil); len(found) != 0 {
			t.Errorf("findings %+v", found)
		}
		// It begins again. Many doubts are one test.
		f.mu.Lock()
		f.back, f.asked = map[netip.Addr]bool{loops: true}, nil
		f.mu.Unlock()
		for range 10 {
			h.unanswered(loops)
		}
		expect("in doubt", true, "198.51.100.1 198.51.100.2 2001:db8::1")
		time.Sleep(loopDoubt)
		expect("after the doubt", true, "198.51.100.1 2001:db8::1")
		if len(f.asked) != 1 {
			t.Errorf("asked %v", f.asked)
		}
		// A resolver that does not answer is intercepted, and tested until it does.
		silent := netip.MustParseAddr("198.51.100.9")
		f.mu.Lock()
		f.silent[silent], f.asked = true, nil
		f.mu.Unlock()
		h.setResolvers(addrList("198.51.100.9"))
		time.Sleep(loopTries * loopPause)
		expect("a silent resolver", true, "198.51.100.9")
		f.mu.Lock()
		f.silent, f.back, f.asked = nil, map[netip.Addr]bool{silent: true}, nil
		f.mu.Unlock()
		time.Sleep(loopDoubt)
		expect("when it answers", true, "")
		if h.follow(nil); !slices.Equal(f.asked, []netip.Addr{silent}) {
			t.Errorf("asked %v", f.asked)
		}
		expect("when the policy is gone", false, "")
	})
}

// TestAResolverThatCannotBeTested is not intercepted; one that was intercepted stays.
func TestAResolverThatCannotBeTested(t *testing.T) {
	f := &loopFake{fails: errors.New("netlink")}
	h := newHostDNS(f.test, f.change, time.Now, slog.New(slog.DiscardHandler))
	h.recover(addrList("198.51.100.1"))
	h.setResolvers(addrList("198.51.100.1 198.51.100.2"))
	h.follow(nodeUnder(t, byName))
	for _, r := range addrList("198.51.100.1 198.51.100.2") {
		h.testOne(t.Context(), r)
	}
	var n intercept.Network
	if h.addTo(&n); !slices.Equal(n.HostResolvers, addrList("198.51.100.1")) {
		t.Errorf("intercepted: %v", n.HostResolvers)
	}
}

// TestTheMarkOfSockets stays until the kernel leads no query to an agent.
func TestTheMarkOfSockets(t *testing.T) {
	h := newHostDNS(nil, func() {}, time.Now, slog.New(slog.DiscardHandler))
	h.setResolvers(addrList("198.51.100.1"))
	serving := map[netip.Addr]netip.Addr{netip.MustParseAddr("198.51.100.7"): {}}
	expect := func(when string, want proxy.Host) {
		t.Helper()
		if d := cmp.Diff(want, h.host(serving, 0x60), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
			t.Errorf("%s (-want +got):\n%s", when, d)
		}
	}
	former := addrList("198.51.100.7")
	expect("at first", proxy.Host{Former: former})
	h.follow(nodeUnder(t, byName))
	expect("wanted", proxy.Host{Resolvers: addrList("198.51.100.1"), Former: former, Mark: 0x60})
	h.setSettled(true)
	h.follow(nil)
	expect("wanted no more", proxy.Host{Former: former, Mark: 0x60})
	h.setSettled(false)
	expect("settled", proxy.Host{Former: former})
	h.recover(former)
	expect("after another agent", proxy.Host{Former: former, Mark: 0x60})
}

// TestAsksNames: an Audit policy has names logged.
func TestAsksNames(t *testing.T) {
	for spec, want := range map[string]bool{
		"egress: [{action: Deny}]": false, "egress: [{action: Accept, networks: [192.0.2.0/24]}, {action: Deny}]": false, byName: true,
		"egress: [{action: Deny}], enforcement: Audit": true, "egress: [{action: Deny, matches: [{pattern: '*.test'}]}]": true,
	} {
		if got := asksNames(nodeUnder(t, spec).Node()); got != want {
			t.Errorf("%s: %v", spec, got)
		}
	}
	if asksNames(nil) {
		t.Error("without policies")
	}
}

// TestHostResolvers are those of the host's files, in their order, and single addresses with UDP 53 of the
// Corefile.
func TestHostResolvers(t *testing.T) {
	row := func(to string, p policy.Protocol, first, last uint16) policy.Failsafe {
		return policy.Failsafe{Out: true, Networks: []netip.Prefix{netip.MustParsePrefix(to)}, Ports: []policy.PortRange{{Protocol: p, First: first, Last: last}}}
	}
	c := failsafe.Config{Rows: []policy.Failsafe{
		row("192.0.2.54/32", policy.UDP, 53, 53), row("192.0.2.54/32", policy.TCP, 53, 53), row("192.0.2.53/32", policy.UDP, 53, 53), row("192.0.2.55/32", policy.TCP, 53, 53),
		row("192.0.2.0/24", policy.UDP, 53, 53), row("192.0.2.56/32", policy.UDP, 1, 65535), {Out: true, Networks: []netip.Prefix{netip.MustParsePrefix("192.0.2.57/32")}},
		{In: true, Networks: []netip.Prefix{netip.MustParsePrefix("192.0.2.58/32")}, Ports: []policy.PortRange{{Protocol: policy.UDP, First: 53, Last: 53}}},
	}}
	if got := hostResolvers(addrList("2001:db8::53 192.0.2.53"), c); !slices.Equal(got, addrList("2001:db8::53 192.0.2.53 192.0.2.54")) {
		t.Errorf("%v", got)
	}
}

// TestFindingsOfUnledQueries: they name the users and the interfaces.
func TestFindingsOfUnledQueries(t *testing.T) {
	h := newHostDNS(nil, func() {}, time.Now, slog.New(slog.DiscardHandler))
	snap := nodeUnder(t, byName)
	unled := []layout.Unled{{UID: 101, Iface: "eth0", Resolver: netip.MustParseAddr("192.0.2.53")}}
	if got := h.findings(snap, unled); len(got) != 0 {
		t.Errorf("without interception: %+v", got)
	}
	h.follow(snap)
	got := h.findings(snap, unled)
	if len(got) != 1 || got[0].Reason != status.SocketBound || got[0].Policy != "nodenetworkpolicy:host" || got[0].Pod != policy.NodeRef("n1") || !strings.Contains(got[0].Message, "user 101 by eth0 to 192.0.2.53") {
		t.Errorf("%+v", got)
	}
	if got := h.findings(nil, unled); len(got) != 0 {
		t.Errorf("without a snapshot: %+v", got)
	}
}
