package compile

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/policytest"
)

func checked(r v1alpha1.EgressRule) v1alpha1.EgressRule {
	r.ServerName = v1alpha1.ServerNameRequire
	return r
}

// verdict is the evaluation of a TCP connection to an address for which an answer to each of names counts.
func verdict(s *policy.Snapshot, pod string, port uint16, would bool, names ...string) string {
	v := s.View(addr(pod))
	at := netip.AddrPortFrom(addr("192.0.2.1"), port)
	f := &policy.Flow{Protocol: policy.TCP, Dialled: at, Reached: at, Would: would}
	for _, n := range names {
		f.Enter(policy.Decide(v, policy.Query{Name: policytest.Name(n), Would: would}).Matches...)
	}
	allowed, by := policy.Evaluate(v, s, f)
	rule := ""
	if by != nil {
		rule = " " + by.Policy + " " + by.Path
	}
	return [...]string{"deny", "allow", "check"}[policy.VerdictOf(allowed, by)] + rule
}

// TestServerName: rules that require the server name have grants of their own in each tier, and a plain rule
// for the same name comes before them in the Namespace tier.
func TestServerName(t *testing.T) {
	s := compile(
		[]policy.Pod{aPod("web", "web", "10.0.0.1")},
		aPolicy("a", "web", on(aRule("plain.test", "both.test"), tcp(443)), checked(on(aRule("checked.test", "both.test"), tcp(443)))),
		aPolicy("b", "web", checked(on(aRule("*.test"), tcp(443), tcp(8443)))),
		audited(aPolicy("c", "web", checked(on(aRule("seen.example.org"), tcp(443))))),
	)
	v := s.View(addr("10.0.0.1"))
	var ids []policy.RuleID
	for _, r := range v.Rules.NamespaceChecked {
		ids = append(ids, r.ID)
		if !r.ID.ServerName() || r.ID.Lasting() || r.ID != r.NewID() || !v.HasRule(r.ID) {
			t.Errorf("%s %s has the ID %q", r.Policy, r.Path, r.ID)
		}
	}
	if slices.Sort(ids); len(slices.Compact(ids)) != 3 {
		t.Errorf("IDs %v", ids)
	}
	diff.Error(t, []policy.PortSet{"tcp/443"}, v.PortSets())
	opened, _ := v.ExactNames()
	diff.Error(t, "[both.test plain.test checked.test]", fmt.Sprint(opened))
	var got []string
	for _, o := range v.Decide(policytest.Name("both.test")).Openings(60) {
		got = append(got, fmt.Sprint(o.Ports, " ", o.Rule.ServerName(), " ", o.By))
	}
	slices.Sort(got)
	diff.Error(t, []string{"tcp/443 false [shop/a both.test]", "tcp/443 true [shop/a both.test]", "tcp/443,tcp/8443 true [shop/b *.test]"}, got)
	for _, c := range []struct {
		port  uint16
		names []string
		want  string
	}{
		{443, nil, "deny"},
		{443, []string{"plain.test"}, "allow shop/a spec.egress[0]"},
		{443, []string{"checked.test"}, "check shop/a spec.egress[1]"},
		{443, []string{"both.test"}, "allow shop/a spec.egress[0]"},
		{443, []string{"checked.test", "plain.test"}, "allow shop/a spec.egress[0]"},
		{8443, []string{"both.test"}, "check shop/b spec.egress[0]"},
		{80, []string{"both.test"}, "deny"},
		{443, []string{"seen.example.org"}, "deny"},
	} {
		diff.Error(t, c.want, verdict(s, "10.0.0.1", c.port, false, c.names...), c.port, c.names)
	}
	diff.Error(t, "allow shop/c spec.egress[0]", verdict(s, "10.0.0.1", 443, true, "seen.example.org"))
}

// TestServerNameInOrder: in the tiers with an order the first hit decides, whether it is checked or not.
func TestServerNameInOrder(t *testing.T) {
	const spec = "tier: %s\npriority: %d\nsubject: {namespaces: {}}\negress: [{action: %s, matches: [{name: a.test}], ports: [{protocol: TCP, port: %d}], serverName: %s}]"
	in := Input{Pods: []policy.Pod{aPod("web", "web", "10.0.0.1")}, Policies: []*v1alpha1.FQDNNetworkPolicy{aPolicy("own", "web", on(aRule("a.test"), tcp(4)))}}
	for i, r := range []struct {
		tier, action string
		port         int
		serverName   string
	}{
		{"Admin", "Accept", 1, "Require"}, {"Admin", "Accept", 1, "Ignore"},
		{"Admin", "Accept", 2, "Ignore"}, {"Admin", "Accept", 2, "Require"},
		{"Admin", "Accept", 3, "Require"}, {"Admin", "Deny", 3, "Ignore"},
		{"Admin", "Pass", 4, "Ignore"}, {"Admin", "Accept", 4, "Require"},
		{"Baseline", "Accept", 5, "Require"}, // not asked
		{"Admin", "Deny", 6, "Require"},      // broken: it denies every connection
		{"Admin", "Accept", 7, "Ignore"},
	} {
		in.ClusterPolicies = append(in.ClusterPolicies, aCluster(t, fmt.Sprintf("p%02d", i), fmt.Sprintf(spec, r.tier, i, r.action, r.port, r.serverName)))
	}
	s := New().Compile(in)
	var got []string
	for port := range uint16(8) {
		got = append(got, verdict(s, "10.0.0.1", port, false, "a.test"))
	}
	const path = " spec.egress[0]"
	diff.Error(t, []string{"deny p09" + path, "check p00" + path, "allow p02" + path, "check p04" + path, "allow shop/own" + path,
		"deny p09" + path, "deny p09" + path, "deny p09" + path}, got)
	for r := range s.Views[0].Rules.Identified() {
		if r.ServerName != r.ID.ServerName() || r.Broken && r.ServerName {
			t.Errorf("%s: ID %q", r.Policy, r.ID)
		}
	}
}

// TestBoundOfServerNames: each rule takes a set of its own, those of Audit policies none.
func TestBoundOfServerNames(t *testing.T) {
	var policies []*v1alpha1.FQDNNetworkPolicy
	for i := range 6 {
		var rules []v1alpha1.EgressRule
		for j := range 50 {
			rules = append(rules, checked(on(aRule(fmt.Sprintf("n%d-%d.test", i, j)), tcp(443))))
		}
		policies = append(policies, aPolicy(fmt.Sprint("p", i), "", rules...))
	}
	audited(policies[0])
	s := compile([]policy.Pod{aPod("web", "x", "10.0.0.1"), aPod("db", "y", "10.0.0.2")}, policies...)
	diff.Error(t, 50+250, len(s.Views[0].Rules.NamespaceChecked))
	policies[0].Spec.Enforcement = ""
	s = compile([]policy.Pod{aPod("web", "x", "10.0.0.1")}, policies...)
	diff.Error(t, MaxViewPortSets, len(s.Views[0].Rules.NamespaceChecked))
	diff.Error(t, 1, len(s.Problems))
}
