package explain

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/fatal"
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

// TestAllKinds: of policies of all four kinds the rules are in the order in which they are
// asked, ours before the standard's, and the verdict is that of policy.Evaluate.
func TestAllKinds(t *testing.T) {
	free := cart()
	free.Name, free.Labels, free.IPs = "free-1", map[string]string{"app": "free"}, []netip.Addr{netip.MustParseAddr("10.1.0.11")}
	const nets = `Admin Deny by clusternetworkpolicy:admin (spec.egress[0], "nets") to `
	const pass = `Admin Pass by admin (spec.egress[1]) to 198.51.100.0/24, on any`
	const rest = "Baseline Deny by rest (spec.egress[0]) to everywhere, on any"
	const db = "Namespace Accept by shop/db-out (spec.egress[0]) to 198.51.100.7/32, on tcp/5432"
	for _, c := range []struct {
		pod     policy.Pod
		to      string
		verdict Verdict
		rules   []string
	}{
		{cart(), "x.paste.test:443", Denied, []string{`Admin Deny by admin (spec.egress[0], "pastes") to names, on any: decides`}},
		{cart(), "registry.test:443", OnceAsked, []string{"Admin Accept by admin (spec.egress[2]) to names, on tcp/443: decides"}},
		{cart(), "a.b.mirror.test:8080", OnceAsked, []string{"Admin Accept by clusternetworkpolicy:admin (spec.egress[1]) to names, on any: decides"}},
		{cart(), "www.example.org:443", OnceAsked, []string{"Namespace Accept by shop/base (spec.egress[0]) to names, on tcp/443: decides"}},
		{cart(), "198.51.100.7:5432", Allowed, []string{pass, db + ": decides"}},
		{cart(), "198.51.100.7:80", Denied, []string{pass, db + ", not on this port"}},
		{cart(), "203.0.113.9:443", Denied, []string{nets + "198.51.100.0/24,203.0.113.0/24, on any: decides"}},
		{free, "registry.test:443", OnceAsked, []string{"Admin Accept by admin (spec.egress[2]) to names, on tcp/443: decides", rest}},
		{free, "www.example.org:443", Denied, []string{rest + ": decides"}},
		{free, "198.51.100.7:5432", Denied, []string{pass, rest + ": decides"}},
	} {
		f := allKinds(t, c.pod)
		to := target(t, c.to)
		e := Explain(Question{To: to}, f)
		var rules []string
		for _, r := range e.Rules {
			rules = append(rules, r.String())
		}
		if d := cmp.Diff(c.rules, rules); e.Verdict != c.verdict || d != "" {
			t.Errorf("%s to %s: %s: %s\n%s", c.pod.Name, c.to, e.Verdict, e.Reason, d)
		}
		flow := policy.Flow{Protocol: to.Protocol, Dialled: netip.AddrPortFrom(to.Addr, to.Port), Reached: netip.AddrPortFrom(to.Addr, to.Port)}
		if to.Name != "" {
			flow.Enter(policy.Decide(f.View, policy.Query{Name: to.Name}).Matches...)
		}
		if allowed, _ := policy.Evaluate(f.View, f.Snapshot, &flow); allowed != (e.Verdict != Denied) {
			t.Errorf("%s to %s: %s, and Evaluate allows: %v", c.pod.Name, c.to, e.Verdict, allowed)
		}
		var selecting []string
		for _, p := range e.ClusterPolicies {
			selecting = append(selecting, p.String())
		}
		if want := []string{"Admin policy admin", "Admin policy clusternetworkpolicy:admin", "Baseline policy rest"}; !slices.Equal(selecting, want) {
			t.Errorf("selected by %q", selecting)
		}
	}
}

// TestKindsAreHiddenApart: the right to read one kind of cluster policies shows no name of the
// other.
func TestKindsAreHiddenApart(t *testing.T) {
	f := allKinds(t, cart())
	f.SeesCluster = func(standard bool) bool { return standard }
	for to, want := range map[string]string{
		"198.51.100.7:80": "Admin Pass, on any", "203.0.113.9:443": `Admin Deny by clusternetworkpolicy:admin (spec.egress[0], "nets") to 198.51.100.0/24,203.0.113.0/24, on any: decides`,
	} {
		if e := Explain(Question{To: target(t, to)}, f); len(e.Rules) == 0 || e.Rules[0].String() != want {
			t.Errorf("%s: %v, want %s", to, e.Rules, want)
		}
	}
	f.SeesCluster = func(standard bool) bool { return !standard }
	if e := Explain(Question{To: target(t, "203.0.113.9:443")}, f); e.Reason != "a cluster policy (Admin) denies 203.0.113.9" {
		t.Error(e.Reason)
	}
}

// TestBy: the matches of a grant by cluster policies have no name for callers who may not read
// these, also where the policy is gone.
func TestBy(t *testing.T) {
	v := allKinds(t, cart()).View
	none := func(bool) bool { return false }
	for by, want := range map[string]string{
		"":                              "",
		"shop/base *.cdn.test":          "shop/base *.cdn.test",
		"admin registry.test":           "a cluster policy (Admin)",
		"gone x.test":                   "a cluster policy",
		"admin a.test,admin b.test":     "a cluster policy (Admin)",
		"rest x.test,shop/base *.a.b":   "a cluster policy (Baseline),shop/base *.a.b",
		"clusternetworkpolicy:admin *.": "a cluster policy (Admin)",
	} {
		if got := By(by, v, none); got != want {
			t.Errorf("%q: %q, want %q", by, got, want)
		}
		if got := By(by, v, everyKind); got != by {
			t.Errorf("%q: %q to who may read all", by, got)
		}
	}
	if got := By("admin x.test", nil, none); got != "a cluster policy" {
		t.Error(got)
	}
	if got := By("clusternetworkpolicy:a x,b y", v, func(standard bool) bool { return standard }); got != "clusternetworkpolicy:a x,a cluster policy" {
		t.Error(got)
	}
}

// TestDeniedBeforeItsFirstQuery: a rule of a cluster policy denies some ports of a name whose addresses are
// not known, and nothing else denies the name.
func TestDeniedBeforeItsFirstQuery(t *testing.T) {
	cluster := &v1alpha1.ClusterFQDNNetworkPolicy{}
	fatal.If(t, yaml.UnmarshalStrict([]byte("{metadata: {name: no-mail}, spec: {tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Deny, matches: [{name: mail.test}], ports: [{protocol: TCP, port: 25}]}]}}"), cluster))
	snap := compile.New().Compile(compile.Input{ClusterPolicies: []*v1alpha1.ClusterFQDNNetworkPolicy{cluster}, Pods: []policy.Pod{cart()}})
	for to, want := range map[string]Verdict{"mail.test:25": Denied, "mail.test:443": Allowed} {
		f := about(t, cart(), nil)
		f.Snapshot, f.View, f.SeesCluster = snap, snap.ViewOf(cart().PodRef), func(bool) bool { return true }
		if e := Explain(Question{To: target(t, to)}, f); e.Verdict != want {
			t.Errorf("%s: %s: %s", to, e.Verdict, e.Reason)
		}
	}
}
