package explain

import (
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/netpol"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/netpolicyfor"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

// TestAnotherEngine: for what the policies allow, the answer has the NetworkPolicies that an engine
// needs beside them, and those of cluster policies only for callers who may read these.
func TestAnotherEngine(t *testing.T) {
	const limits = "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: limits, namespace: shop}, spec: {policyTypes: [Egress]}}"
	np := &networkingv1.NetworkPolicy{}
	fatal.If(t, yaml.UnmarshalStrict([]byte(limits), np))
	cluster := policytest.ClusterPolicy(t, "admin", "{tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Accept, matches: [{name: mirror.test}], ports: [{protocol: TCP, port: 8443}]}]}")
	for _, c := range []struct {
		name, policies, to string
		beside             []*networkingv1.NetworkPolicy
		cluster            []*v1alpha1.ClusterFQDNNetworkPolicy
		sees               bool
		verdict            Verdict
		objects, do        []string
	}{
		{"a NetworkPolicy limits the pod", base, "www.example.org:443", []*networkingv1.NetworkPolicy{np}, nil, true, OnceAsked, []string{"port: 443"}, []string{"opens DNS and the ports of shop/base in that engine"}},
		{"nothing limits it", base, "www.example.org:443", nil, nil, true, OnceAsked, nil, nil},
		{"it is denied in any case", base, "other.test:443", []*networkingv1.NetworkPolicy{np}, nil, true, Denied, nil, nil},
		{"Audit opens nothing", watch, "bank.test:443", []*networkingv1.NetworkPolicy{np}, nil, true, Allowed, nil, nil},
		{"both kinds", base, "mirror.test:8443", []*networkingv1.NetworkPolicy{np}, []*v1alpha1.ClusterFQDNNetworkPolicy{cluster}, true, OnceAsked, []string{"port: 443", "port: 8443"}, []string{"the ports of shop/base, admin in that engine"}},
		{"not the tenant's to see", base, "mirror.test:8443", []*networkingv1.NetworkPolicy{np}, []*v1alpha1.ClusterFQDNNetworkPolicy{cluster}, false, OnceAsked, []string{"port: 443"}, []string{"the ports of shop/base in", netpolicyfor.Refused}},
	} {
		in := compile.Input{Policies: manifests(t, c.policies), NetworkPolicies: c.beside, ClusterPolicies: c.cluster, Pods: []policy.Pod{cart()}}
		snap := compile.New().Compile(in)
		f := about(t, cart(), in.Policies)
		f.Snapshot, f.View, f.NetworkPolicies = snap, snap.ViewOf(cart().PodRef), c.beside
		f.SeesCluster = func(string) bool { return c.sees }
		f.Engine = &Engine{Endpoint: netpolicyfor.Endpoint(), ClusterPolicies: c.cluster}
		e := Explain(Question{To: target(t, c.to)}, f)
		advice := Advice{}
		if e.Advice != nil {
			advice = *e.Advice
		}
		diff.Equal(t, c.verdict, e.Verdict, c.name, e.Reason)
		if said := strings.Join(advice.Do, "\n"); c.verdict != Denied {
			for _, want := range c.do {
				diff.Has(t, want, said, c.name, "lacks")
			}
		}
		if c.verdict == Denied {
			continue
		}
		var objects []string
		for doc := range strings.SplitSeq(advice.NetworkPolicy, "---\n") {
			if doc != "" {
				objects = append(objects, doc)
			}
		}
		alone := *f.View
		alone.Standalone, f.View = true, &alone
		if e := Explain(Question{To: target(t, c.to)}, f); e.Advice != nil && e.Advice.NetworkPolicy != "" {
			t.Errorf("%s, where Namegate enforces all NetworkPolicies:\n%s", c.name, e.Advice.NetworkPolicy)
		}
		f.Engine.Drops = true
		if e := Explain(Question{To: target(t, c.to)}, f); (e.Advice != nil && e.Advice.NetworkPolicy != "") != (len(c.objects) > 0) {
			t.Errorf("%s, where another engine drops queries all the same: %+v", c.name, e.Advice)
		}
		if len(objects) != len(c.objects) || !c.sees && strings.Contains(advice.NetworkPolicy, "8443") {
			t.Fatalf("%s:\n%s", c.name, advice.NetworkPolicy)
		}
		for i, text := range objects {
			var n networkingv1.NetworkPolicy
			if err := yaml.UnmarshalStrict([]byte(text), &n); err != nil || !netpol.Ignored(&n) || !strings.Contains(text, c.objects[i]+"\n") || !strings.Contains(text, "port: 53") {
				t.Errorf("%s: %v\n%s", c.name, err, text)
			}
		}
	}
}

// TestFirstNetworkPolicyWithoutAnotherEngine: the first NetworkPolicy of a pod denies it nothing where Namegate enforces
// all of them.
func TestFirstNetworkPolicyWithoutAnotherEngine(t *testing.T) {
	f := about(t, cart(), manifests(t, base))
	alone := *f.View
	alone.Standalone, f.View = true, &alone
	e := Explain(Question{To: target(t, "203.0.113.77:443")}, f)
	if e.Advice == nil || e.Advice.NetworkPolicy == "" || strings.Contains(strings.Join(e.Advice.Do, "\n"), firstOne) {
		t.Errorf("%+v", e.Advice)
	}
}
