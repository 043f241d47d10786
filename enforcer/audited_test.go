package enforcer

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/enforcer/intercept"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/fatal"
)

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
	state := w.e.tablesState(w.e.planOf(w.e.snapshot))
	if len(state.Selected) != 3 || !slices.Equal(state.Audited, addrs("10.1.0.5")) {
		t.Errorf("selected %v, watched %v", state.Selected, state.Audited)
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
