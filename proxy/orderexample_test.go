package proxy

import (
	"net/netip"
	"os"
	"testing"

	"github.com/miekg/dns"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestExampleBesideAntreas: the policy of the examples is in its document, beside the policy of
// Antrea that does the same. With dns.denied Resolve the name resolves, and its addresses are
// entered for the rule that denies them, before a policy of the namespace that allows the name;
// without the setting the name does not exist. Other pods are not affected.
func TestExampleBesideAntreas(t *testing.T) {
	text, err := os.ReadFile("../examples/clusterfqdnnetworkpolicy.yaml")
	fatal.If(t, err)
	document, err := os.ReadFile("../docs/clusterpolicies.md")
	fatal.If(t, err)
	diff.Has(t, "```yaml\n"+string(text)+"```\n", string(document), "docs/clusterpolicies.md does not have examples/clusterfqdnnetworkpolicy.yaml")
	var example v1alpha1.ClusterFQDNNetworkPolicy
	fatal.If(t, yaml.UnmarshalStrict(text, &example))
	test := labPods[2]
	test.Labels = map[string]string{"app": "test"}
	allow := policiesOf(t, "{metadata: {name: allow, namespace: shop}, spec: {podSelector: {}, egress: [{matches: [{name: example.com}]}]}}")
	table := map[string][]string{"example.com A": {"example.com. 600 IN A 192.0.2.1"}}
	publish := func() *cacheLab {
		l := newCacheLab(t, table)
		snap := compile.New().Compile(compile.Input{
			Policies: allow, ClusterPolicies: []*v1alpha1.ClusterFQDNNetworkPolicy{&example},
			Namespaces: map[string]map[string]string{"shop": {}}, Pods: []policy.Pod{test, labPods[1]},
		})
		if len(snap.Problems) > 0 {
			t.Fatalf("problems: %v", snap.Problems)
		}
		l.s.Publish(snap)
		return l
	}

	l := publish()
	r, rec := l.decided(newQuery("example.com", dns.TypeA))
	equal(t, "the answer", data(r.Answer), []string{"example.com. 600 A 192.0.2.1"})
	equal(t, "the entries", l.kernel.entries(), []string{"d example.com 192.0.2.1 any +24h10m0s"})
	if rec.Verdict != audit.NameDenied || rec.Rule.Name != "example" || len(rec.Answers[0].Openings) > 0 {
		t.Errorf("logged %+v", rec)
	}
	view, snap := l.who(strictPod).view, l.s.snapshot.Load()
	f := &policy.Flow{Protocol: policy.TCP, Dialled: netip.MustParseAddrPort("192.0.2.1:443"), Reached: netip.MustParseAddrPort("192.0.2.1:443"), Open: []policy.PortSet{policy.AnyPort}}
	for r := range view.Rules.Cluster() {
		for o := range l.kernel.known() {
			if o.rule != "" && r.ID == o.rule {
				f.Entries = append(f.Entries, r)
			}
		}
	}
	if allowed, by := policy.Evaluate(view, snap, f); allowed || by == nil || by.Name != "example" || by.Denied != policy.Reject {
		t.Errorf("the connection is allowed: %v, by %+v", allowed, by)
	}
	l.any("10.1.0.3", newQuery("example.com", dns.TypeA))
	if l.lines.all[0].Verdict != audit.Allowed {
		t.Errorf("another pod: %+v", l.lines.all[0])
	}

	example.Spec.DNS.Denied = ""
	l = publish()
	if r, rec = l.decided(newQuery("example.com", dns.TypeA)); r.Rcode != dns.RcodeNameError || rec.Verdict != audit.NameDenied || len(l.kernel.entries()) > 0 {
		t.Errorf("by the default: %v, logged %v, entries %q", r, rec.Verdict, l.kernel.entries())
	}
}
