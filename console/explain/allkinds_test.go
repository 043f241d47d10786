package explain

import (
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cnp"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

const (
	adminOurs = `
metadata: {name: admin}
spec:
  tier: Admin
  priority: 5
  subject: {namespaces: {}}
  egress:
  - {name: pastes, action: Deny, matches: [{pattern: "**.paste.test"}]}
  - {action: Pass, networks: [198.51.100.0/24]}
  - {action: Accept, matches: [{name: registry.test}], ports: [{protocol: TCP, port: 443}]}
`
	adminStandard = `
metadata: {name: admin}
spec:
  tier: Admin
  priority: 5
  subject: {pods: {namespaceSelector: {}, podSelector: {}}}
  egress:
  - {name: nets, action: Deny, to: [{networks: [198.51.100.0/24, 203.0.113.0/24]}]}
  - {action: Accept, to: [{domainNames: ["*.mirror.test"]}]}
`
	baselineOurs = `
metadata: {name: rest}
spec:
  tier: Baseline
  priority: 9
  subject: {namespaces: {}}
  egress: [{action: Deny}]
`
	ordinary = `
metadata: {name: db-out, namespace: shop}
spec:
  podSelector: {matchLabels: {app: cart}}
  policyTypes: [Egress]
  egress:
  - {to: [{ipBlock: {cidr: 198.51.100.7/32}}], ports: [{port: 5432}]}
`
)

// allKinds returns the facts about a pod under policies of all kinds.
func allKinds(t *testing.T, pod policy.Pod) Facts {
	t.Helper()
	var admin, rest v1alpha1.ClusterFQDNNetworkPolicy
	var standard unstructured.Unstructured
	var np networkingv1.NetworkPolicy
	for text, into := range map[string]any{adminOurs: &admin, baselineOurs: &rest, adminStandard: &standard.Object, ordinary: &np} {
		fatal.If(t, yaml.Unmarshal([]byte(text), into))
	}
	f := about(t, pod, manifests(t, base))
	f.Snapshot = compile.New().Compile(compile.Input{
		Policies: f.Policies, Pods: []policy.Pod{pod}, ClusterPolicies: []*v1alpha1.ClusterFQDNNetworkPolicy{&admin, &rest},
		ClusterNetworkPolicies: []*unstructured.Unstructured{&standard}, NetworkPolicies: []*networkingv1.NetworkPolicy{&np},
	})
	f.View, f.Problems, f.SeesCluster = f.Snapshot.ViewOf(pod.PodRef), f.Snapshot.Problems, everyKind
	return f
}

// TestKindsAreHiddenApart: the right to read one kind of cluster policies shows no name of the
// other.
func TestKindsAreHiddenApart(t *testing.T) {
	f := allKinds(t, cart())
	var selecting []string
	for _, p := range Explain(Question{To: target(t, "x.test")}, f).ClusterPolicies {
		selecting = append(selecting, p.String())
	}
	diff.Error(t, []string{"Admin policy admin", "Admin policy clusternetworkpolicy:admin", "Baseline policy rest"}, selecting, "selected by")
	f.SeesCluster = cnp.IsID
	for to, want := range map[string]string{
		"198.51.100.7:80": "Admin Pass, on any", "203.0.113.9:443": `Admin Deny by clusternetworkpolicy:admin (spec.egress[0], "nets") to 198.51.100.0/24,203.0.113.0/24, on any: decides`,
	} {
		if e := Explain(Question{To: target(t, to)}, f); len(e.Rules) == 0 || e.Rules[0].String() != want {
			t.Errorf("%s: %v, want %s", to, e.Rules, want)
		}
	}
	f.SeesCluster = func(id string) bool { return !cnp.IsID(id) }
	if e := Explain(Question{To: target(t, "203.0.113.9:443")}, f); e.Reason != "a cluster policy (Admin) denies 203.0.113.9" {
		t.Error(e.Reason)
	}
}

// TestBy: the matches of a grant by cluster policies have no name for callers who may not read
// these, also where the policy is gone.
func TestBy(t *testing.T) {
	v := allKinds(t, cart()).View
	none := func(string) bool { return false }
	for by, want := range map[string]string{
		"":                              "",
		"shop/base *.cdn.test":          "shop/base *.cdn.test",
		"admin registry.test":           "a cluster policy (Admin)",
		"gone x.test":                   "a cluster policy",
		"admin a.test,admin b.test":     "a cluster policy (Admin)",
		"rest x.test,shop/base *.a.b":   "a cluster policy (Baseline),shop/base *.a.b",
		"clusternetworkpolicy:admin *.": "a cluster policy (Admin)",
	} {
		diff.Equal(t, want, By(by, v, none), by)
		diff.Equal(t, by, By(by, v, everyKind), "to who may read all")
	}
	diff.Equal(t, "a cluster policy", By("admin x.test", nil, none))
	diff.Equal(t, "clusternetworkpolicy:a x,a cluster policy", By("clusternetworkpolicy:a x,b y", v, cnp.IsID))
}

// TestDeniedBeforeItsFirstQuery: a rule of a cluster policy denies some ports of a name whose addresses are
// not known, and nothing else denies the name.
func TestDeniedBeforeItsFirstQuery(t *testing.T) {
	cluster := policytest.ClusterPolicy(t, "no-mail", "{tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Deny, matches: [{name: mail.test}], ports: [{protocol: TCP, port: 25}]}]}")
	snap := compile.New().Compile(compile.Input{ClusterPolicies: []*v1alpha1.ClusterFQDNNetworkPolicy{cluster}, Pods: []policy.Pod{cart()}})
	for to, want := range map[string]Verdict{"mail.test:25": Denied, "mail.test:443": Allowed} {
		f := about(t, cart(), nil)
		f.Snapshot, f.View, f.SeesCluster = snap, snap.ViewOf(cart().PodRef), func(string) bool { return true }
		if e := Explain(Question{To: target(t, to)}, f); e.Verdict != want {
			t.Errorf("%s: %s: %s", to, e.Verdict, e.Reason)
		}
	}
}
