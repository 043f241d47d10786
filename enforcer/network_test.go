package enforcer

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/enforcer/intercept"
	"github.com/namegate/namegate/enforcer/ruleset"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

func nodeAddrs(t *testing.T, w *world) []netip.Addr {
	t.Helper()
	all, err := w.links.Addrs()
	fatal.If(t, err)
	return all
}

// TestNetwork: a Service's addresses are served and intercepted from Refresh on,
// the pods behind it are not intercepted, nor are pods that no policy selects; an
// address of the node's range that is unknown is.
func TestNetwork(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := context.Background()
	web, dnsPod, plain := pod("web", "10.1.0.5", "allow"), pod("dns", "10.1.0.6", "allow"), pod("plain", "10.1.0.7", "")
	w.apply([]policy.Pod{web, dnsPod, plain}, pol("allow"))
	service := netip.MustParseAddr("10.96.0.10")
	before := w.inet.Dump()
	serving, err := w.e.intercept.SetNetwork(intercept.Network{
		Resolvers: []netip.Addr{service},
		Backends:  []netip.AddrPort{netip.MustParseAddrPort("10.1.0.6:5353"), netip.MustParseAddrPort("10.2.0.9:5353")},
		PodRanges: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")},
	})
	fatal.If(t, err)
	serving = slices.DeleteFunc(serving, func(a netip.Addr) bool { _, before := w.e.intercept.Lookup(a); return before })
	if len(serving) != 1 || !slices.Contains(nodeAddrs(t, w), serving[0]) {
		t.Fatalf("the Service is served on %v", serving)
	}
	own := serving[0]
	diff.Error(t, before, w.inet.Dump(), "before Refresh the tables changed")
	again, err := w.e.Refresh(ctx)
	if err != nil || !slices.Contains(again, own) {
		t.Fatalf("after Refresh %v are served: %v", again, err)
	}
	dump := w.inet.Dump()
	for text, want := range map[string]bool{
		"intercept4 { 10.96.0.10 : " + own.String() + " }": true,
		"giveback4 { " + own.String() + " : 10.96.0.10 }":  true,
		"intercepted4 { 10.1.0.5 }":                        true,
		"intercepted4 { 10.1.0.6 }":                        false,
		"plain4 { 10.1.0.6 }":                              true,
		"plain4 { 10.1.0.7 }":                              true,
		"plain4 { 10.2.0.9 }":                              true,
		"plain4 { 10.1.0.5 }":                              false,
		"podrange4 { 10.1.0.0/24 }":                        true,
		"backends4 { 0 : 10.1.0.6 . 5353 }":                true,
		"backends4 { 15 : 10.2.0.9 . 5353 }":               true,
	} {
		diff.Equal(t, want, strings.Contains(dump, text), text, "in the tables")
	}
	if !w.dials("10.1.0.5", "10.96.0.10", 53) {
		t.Error("without an agent the Service would be closed to a selected pod")
	}

	// A pod that goes leaves nothing, and its address is held again.
	w.apply([]policy.Pod{web}, pol("allow"))
	if dump := w.inet.Dump(); strings.Contains(dump, "plain4 { 10.1.0.7 }") || strings.Contains(dump, "known4 { 10.1.0.7 }") {
		t.Errorf("the address of a pod that is gone is known:\n%s", dump)
	}

	// The Service gets another address, and the first is not intercepted any more.
	other := netip.MustParseAddr("10.96.0.11")
	again = w.learns(intercept.Network{Resolvers: []netip.Addr{other}})
	if slices.Contains(again, own) || !slices.Contains(again, w.e.intercept.Serving()[other]) {
		t.Errorf("served after the change: %v", again)
	}
	dump = w.inet.Dump()
	for _, gone := range []string{"10.96.0.10", "10.1.0.0/24", "5353"} {
		if strings.Contains(dump, gone) {
			t.Errorf("%s stays in the tables", gone)
		}
	}
	if w.dials("10.1.0.5", "10.96.0.10", 53) {
		t.Error("what is no resolver any more is open")
	}
	w.e.intercept.Stop()
	if slices.ContainsFunc(nodeAddrs(t, w), intercept.InRange) {
		t.Errorf("after Stop serving addresses stay: %v", nodeAddrs(t, w))
	}
}

func sameLines(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n  %s\nwant:\n  %s", what, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// TestAuditedPodsAreWatched: those that only Audit policies select, from the commit on
// and no others.
func TestAuditedPodsAreWatched(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	watch := pol("watch", "tcp/443 *.example.net")
	watch.Spec.Enforcement = v1alpha1.EnforcementAudit
	a, b, c := pod("a", "10.1.0.5 2001:db8:1::5", "watch"), pod("b", "10.1.0.6", "watch", "x"), pod("c", "10.1.0.7")
	watched := func() (out []string) {
		for line := range strings.Lines(w.inet.Dump()) {
			if words := strings.Fields(line); len(words) > 6 && words[1] == "element" && strings.HasPrefix(words[4], "audited") {
				out = append(out, words[6])
			}
		}
		slices.Sort(out)
		return out
	}
	s := w.compile([]policy.Pod{a, b, c}, watch, pol("x", "tcp/443 *.example.net"))
	w.prepare(s)
	sameLines(t, "watched before the commit", watched())
	fatal.If(t, w.rollOut(s))
	sameLines(t, "watched", watched(), "10.1.0.5", "2001:db8:1::5")
	a.Labels = map[string]string{"watch": "yes", "x": "yes"}
	b.Labels = map[string]string{"watch": "yes"}
	w.apply([]policy.Pod{a, b, c}, watch, pol("x", "tcp/443 *.example.net"))
	sameLines(t, "watched after a change", watched(), "10.1.0.6")
}

// TestPodsUnderAuditRulesAreWatched: those in force too, if rules of Audit policies could deny
// connections; and not those that only cluster policies in force select.
func TestPodsUnderAuditRulesAreWatched(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.compiler = compile.New()
	a, b, c := pod("a", "10.1.0.5", "watch"), pod("b", "10.1.0.6", "x"), pod("c", "10.1.0.7", "soon")
	in := compile.Input{Pods: []policy.Pod{a, b, c}, Policies: []*v1alpha1.FQDNNetworkPolicy{pol("x", "tcp/443 *.example.net")}}
	for name, spec := range map[string]string{
		"all":   `{tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Deny, networks: [192.0.2.0/24]}]}`,
		"watch": `{tier: Admin, priority: 2, enforcement: Audit, subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {watch: "yes"}}}}, egress: [{action: Pass}]}`,
		"soon":  `{tier: Admin, priority: 2, enforcement: Audit, subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {soon: "yes"}}}}, egress: [{action: Accept}]}`,
	} {
		in.ClusterPolicies = append(in.ClusterPolicies, clusterPolicy(t, name, spec))
	}
	fatal.If(t, w.rollOut(w.compiler.Compile(in)))
	state := ruleset.State(w.e.tablesInput(w.e.planOf(w.e.snapshot), w.e.snapshot))
	if len(state.Selected) != 3 || !slices.Equal(state.Audited, addrs("10.1.0.5")) {
		t.Errorf("selected %v, watched %v", state.Selected, state.Audited)
	}
}

// TestTheNodesServingAddressesAreGuardedOnceWritten: not while nft refuses the state that guards them.
func TestTheNodesServingAddressesAreGuardedOnceWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(nil)
	serving, err := w.e.intercept.SetNetwork(intercept.Network{NodeDNS: true, HostResolvers: addrs("198.51.100.53")})
	fatal.If(t, err)
	guarded := func() bool {
		return slices.ContainsFunc(serving, func(a netip.Addr) bool { _, is := w.e.intercept.HostResolver(a); return is })
	}
	w.seams.refuse = "nft"
	if _, err := w.e.Refresh(context.Background()); err == nil || guarded() {
		t.Errorf("nft refuses the tables: %v, and the address is guarded: %v", err, guarded())
	}
	w.seams.refuse = ""
	if w.reconcile(); !guarded() {
		t.Error("the tables are written, and the address is not guarded")
	}
}

// TestResolves: DNS is asked at the resolvers, the endpoint and what serves them.
func TestResolves(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if w.e.Resolves(netip.AddrPortFrom(dns4, 53)) {
		t.Error("a resolver is asked before anything is in force")
	}
	w.apply(nil)
	for _, a := range []netip.Addr{dns4, dns6, endpoint4, endpoint6, w.e.intercept.Serving()[dns4], w.e.intercept.Serving()[endpoint6]} {
		if !w.e.Resolves(netip.AddrPortFrom(a, 53)) || w.e.Resolves(netip.AddrPortFrom(a, 54)) {
			t.Errorf("%s is not asked on its port alone", a)
		}
	}
	if w.e.Resolves(addrPort("198.51.100.53:53")) {
		t.Error("another address is a resolver")
	}
	w.learns(intercept.Network{Resolvers: addrs("198.51.100.53")})
	if !w.e.Resolves(addrPort("198.51.100.53:53")) {
		t.Error("a resolver that came later is not asked")
	}
}
