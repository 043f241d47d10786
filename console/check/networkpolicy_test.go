package check

import (
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

const besidePolicy = `apiVersion: namegate.io/v1alpha1
kind: FQDNNetworkPolicy
metadata: {name: p, namespace: shop}
spec:
  podSelector: {matchLabels: {app: cart}}
  enforcement: Enforce
  egress:
  - matches: [{name: www.example.org}]
    ports: [{protocol: TCP, port: 443}]
---
apiVersion: v1
kind: Pod
metadata: {name: cart, namespace: shop, labels: {app: cart}}
`

// aNetworkPolicy has the rules of its text.
func aNetworkPolicy(name, rules string) string {
	return "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: " + name + ", namespace: shop}\nspec:\n" +
		"  podSelector: {matchLabels: {app: cart}}\n  policyTypes: [Egress]\n  egress:\n" + rules
}

// TestNetworkPolicyFindings: each is at its line.
func TestNetworkPolicyFindings(t *testing.T) {
	for _, c := range []struct {
		name, rules string
		want        []string // the beginnings of the messages
	}{
		{"good", "  - to: [{ipBlock: {cidr: 10.0.0.0/8}}]\n    ports: [{port: 443}, {port: web}]\n", nil},
		{"a network that is none", "  - ports: [{protocol: UDP, port: 53}]\n  - to:\n    - ipBlock: {cidr: 10.0.0/8}\n", []string{
			"stdin:24: error: networkpolicy shop/a: spec.egress[1].to[0].ipBlock.cidr: "}},
		{"a selector that is none", "  - to:\n    - podSelector:\n        matchExpressions: [{key: app, operator: Is}]\n", []string{
			"stdin:23: error: networkpolicy shop/a: spec.egress[0].to[0].podSelector: "}},
		{"a field that does not exist", "  - too: []\n  - ports: [{port: 80, name: web}]\n", []string{
			`stdin:22: error: networkpolicy shop/a: spec.egress[0].too: there is no field "too" here; write one of ports, to`,
			`stdin:23: error: networkpolicy shop/a: spec.egress[1].ports[0].name: there is no field "name" here; write one of endPort, port, protocol`}},
		{"a value of another type", "  - to: all\n", []string{"stdin:22: error: networkpolicy shop/a: spec.egress[0].to: "}},
	} {
		got := lint(t, besidePolicy+aNetworkPolicy("a", c.rules))
		if len(got) != len(c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
			continue
		}
		for i, want := range c.want {
			if !strings.HasPrefix(got[i], want) {
				t.Errorf("%s: %q, want %q", c.name, got[i], want)
			}
		}
	}
	twice := lint(t, besidePolicy+aNetworkPolicy("a", "  - ports: [{protocol: UDP, port: 53}]\n")+aNetworkPolicy("a", ""))
	diff.Error(t, []string{"stdin:26: error: networkpolicy shop/a: metadata.name: a NetworkPolicy of that name is in stdin:17; remove or rename one of them"}, twice)
}

// TestAskBesideNetworkPolicy: a rule for every destination allows; a rule for some
// addresses is named, and decides nothing.
func TestAskBesideNetworkPolicy(t *testing.T) {
	for _, c := range []struct {
		name, rules, to string
		verdict         explain.Verdict
		says            []string
	}{
		{"by the policy", "  - {}\n", "www.example.org:443", explain.Allowed, []string{"NetworkPolicy shop/a (spec.egress[0]) at stdin:22 allows"}},
		{"everywhere", "  - {}\n", "evil.test:25", explain.Allowed, []string{"NetworkPolicy shop/a (spec.egress[0]) at stdin:22"}},
		{"everywhere, no port asked", "  - ports: [{port: 53, protocol: UDP}]\n", "evil.test", explain.Allowed, []string{"(spec.egress[0]) at stdin:22"}},
		{"another port", "  - ports: [{port: 53, protocol: UDP}]\n", "evil.test:53", explain.Denied, []string{"- name: evil.test", "port: 53"}},
		{"networks", "  - {to: [{ipBlock: {cidr: 192.0.2.0/24}}]}\n  - to: [{podSelector: {}}]\n    ports: [{port: web}]\n", "evil.test:25", explain.Denied,
			[]string{"no match of the pod's policies covers the name", "may be reached by NetworkPolicy shop/a (spec.egress[", "NetworkPolicy shop/a (spec.egress[1]) at stdin:23"}},
		{"networks on another port", "  - to: [{ipBlock: {cidr: 192.0.2.0/24}}]\n    ports: [{port: 26}]\n", "evil.test:25", explain.Denied, []string{"port: 25"}},
	} {
		m := manifests(t, besidePolicy+aNetworkPolicy("a", c.rules))
		q, err := explain.ParseTarget(c.to)
		fatal.If(t, err)
		a := m.Ask(m.PodsNamed("shop", "cart")[0], q, Options{ClusterDomain: "cluster.local"})
		if a.Verdict != c.verdict || !slices.Equal(a.NetworkPolicies, []string{"shop/a"}) {
			t.Errorf("%s: %+v", c.name, a)
		}
		for _, says := range c.says {
			if !strings.Contains(strings.Join(a.lines(), "\n"), says) {
				t.Errorf("%s: %q does not say %q", c.name, a.lines(), says)
			}
		}
		if c.name == "networks on another port" && strings.Contains(a.Reason, "NetworkPolicy") {
			t.Errorf("%s: %q", c.name, a.Reason)
		}
	}
}

// TestAskAlone: where NetworkPolicies are enforced alone they isolate pods that no other policy selects, the answer
// says that rules have to allow queries, and no advice is for another engine.
func TestAskAlone(t *testing.T) {
	const everywhere = "  - ports: [{port: 443}]\n"
	_, pod, _ := strings.Cut(besidePolicy, "---\n")
	for _, c := range []struct {
		text, to    string
		alone       bool
		verdict     explain.Verdict
		says, hides string
	}{
		{pod + aNetworkPolicy("a", everywhere), "www.example.org:80", false, explain.Allowed, "no policy selects the pod", "DNS queries"},
		{pod + aNetworkPolicy("a", everywhere), "www.example.org:80", true, explain.Denied, "no match of the pod's policies covers the name", "DNS queries"},
		{pod + aNetworkPolicy("a", everywhere), "www.example.org:443", true, explain.Allowed, "the pod's rules decide about its DNS queries too", "no policy selects"},
		{besidePolicy + aNetworkPolicy("a", everywhere), "www.example.org:443", true, explain.Allowed, "allows www.example.org", "DNS queries"},
		{besidePolicy + aNetworkPolicy("a", ""), "www.example.org:443", false, explain.Allowed, "if another engine enforces NetworkPolicies", "DNS queries"},
		{besidePolicy + aNetworkPolicy("a", ""), "www.example.org:443", true, explain.Allowed, "covers the name", "another engine"},
		{besidePolicy, "evil.test:443", false, explain.Denied, "no match", "isolate"},
	} {
		m := manifests(t, c.text)
		q, err := explain.ParseTarget(c.to)
		fatal.If(t, err)
		a := m.Ask(m.PodsNamed("shop", "cart")[0], q, Options{ClusterDomain: "cluster.local", EnforceNetworkPolicies: c.alone})
		if text := strings.Join(a.lines(), "\n"); a.Verdict != c.verdict || !strings.Contains(text, c.says) || strings.Contains(text, c.hides) {
			t.Errorf("%s, alone %v: %s\n%s", c.to, c.alone, text, c.text)
		}
	}
}

// TestAnotherEngine: where a sign of another engine is, the finding has the NetworkPolicy to apply,
// and none once it is applied.
func TestAnotherEngine(t *testing.T) {
	const limits = "---\n{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: limits, namespace: shop}, spec: {podSelector: {}, policyTypes: [Egress]}}\n"
	const blocked = "status: {conditions: [{type: DNSBlocked, status: 'True', reason: DNSBlocked, message: m, lastTransitionTime: '2026-01-01T00:00:00Z'}]}\n"
	const own = "apiVersion: namegate.io/v1alpha1\nkind: FQDNNetworkPolicy\nmetadata: {name: out, namespace: shop}\nspec: {podSelector: {}, egress: [{matches: [{name: www.example.org}], ports: [{protocol: TCP, port: 443}]}]}\n"
	const admin = "apiVersion: namegate.io/v1alpha1\nkind: ClusterFQDNNetworkPolicy\nmetadata: {name: admin}\n" +
		"spec: {tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Accept, matches: [{name: www.example.org}], ports: [{protocol: TCP, port: 443}]}]}\n"
	found := func(text string) (all []Finding) {
		for _, f := range manifests(t, text).Lint(inCluster) {
			if f.Reason == AnotherEngine {
				all = append(all, f)
			}
		}
		return all
	}
	for _, policy := range []string{own, admin} {
		diff.Empty(t, found(policy+limits), "without a sign of another engine")
		diff.Empty(t, found(policy+blocked), "without a NetworkPolicy that limits the pods")
		got := found(policy + blocked + limits)
		diff.MustEqual(t, 1, len(got), got, "of", policy)
		_, text, _ := strings.Cut(got[0].Message, "apply beside it: ")
		var n networkingv1.NetworkPolicy
		fatal.If(t, yaml.UnmarshalStrict([]byte(text), &n))
		if len(n.Spec.Egress) != 2 || n.Spec.Egress[1].Ports[0].Port.IntVal != 443 {
			t.Errorf("%s", text)
		}
		diff.Empty(t, found(policy+blocked+limits+"---\n"+text+"\n"), "it is applied")
		if again := found(strings.Replace(policy, "port: 443", "port: 80", 1) + limits + "---\n" + text + "\n"); len(again) != 1 {
			t.Errorf("the applied one has other ports: %v", again)
		}
		alone := inCluster
		alone.EnforceNetworkPolicies = true
		for text, want := range map[string]bool{policy + blocked + limits: true, strings.Replace(policy, "port: 443", "port: 80", 1) + limits + "---\n" + text + "\n": false} {
			if got := slices.ContainsFunc(manifests(t, text).Lint(alone), func(f Finding) bool { return f.Reason == AnotherEngine }); got != want {
				t.Errorf("where Namegate is the engine: %v for\n%s", got, text)
			}
		}
	}
}
