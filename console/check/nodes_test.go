package check

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/testkit/fatal"
)

// ofNodes are manifests with policies for nodes.
const ofNodes = `
apiVersion: namegate.io/v1alpha1
kind: NodeNetworkPolicy
metadata: {name: workers}
spec:
  nodeSelector: {matchLabels: {role: worker}}
  priority: 1
  egress:
  - {action: Accept, matches: [{name: registry.example.org}], ports: [{protocol: TCP, port: 443}]}
  - {name: rest, action: Deny}
SETTINGS
---
apiVersion: namegate.io/v1alpha1
kind: ClusterFQDNNetworkPolicy
metadata: {name: pods}
spec: {tier: Admin, priority: 2, subject: {namespaces: {}}, egress: [{action: Deny}]}
`

// TestNodesAsk: a node is asked for by its labels, and policies for pods do not hold for it.
func TestNodesAsk(t *testing.T) {
	for _, c := range []struct {
		labels, settings, to string
		verdict              explain.Verdict
		says                 string
	}{
		{"role=worker", "", "registry.example.org:443", explain.Allowed, `"registry.example.org" of nodenetworkpolicy:workers (spec.egress[0].matches[0])`},
		{"role=worker", "", "registry.example.org:80", explain.Denied, "destinations that the node needs are allowed in any case"},
		{"role=worker", "  enforcement: Audit", "other.test:443", explain.WouldDeny, "workers"},
		{"role=db", "", "other.test:443", explain.Allowed, "no policy selects the node"},
		{"", "", "other.test:443", explain.Allowed, "no policy selects the node"},
	} {
		m := manifests(t, strings.Replace(ofNodes, "SETTINGS", c.settings, 1))
		node, err := NodeWith(c.labels)
		fatal.If(t, err)
		q, err := explain.ParseTarget(c.to)
		fatal.If(t, err)
		a := m.Ask(node, q, Options{ClusterDomain: "cluster.local"})
		if a.Verdict != c.verdict || !strings.Contains(strings.Join(a.lines(), "\n"), c.says) || strings.Contains(strings.Join(a.lines(), "\n"), "the pod") || !strings.HasPrefix(a.Pod, "a node with") {
			t.Errorf("%+v: %s", c, a)
		}
	}
	if _, err := NodeWith("role in (a)"); err == nil || !strings.Contains(err.Error(), "write KEY=VALUE") {
		t.Errorf("%v", err)
	}
}

// TestNodesAreReached: rules of a node for what arrives, of each interface, by the address of the source.
func TestNodesAreReached(t *testing.T) {
	m := manifests(t, `{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {role: worker}}, status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: cart, namespace: shop}, spec: {containers: [{name: c}]}}
---
apiVersion: namegate.io/v1alpha1
kind: NodeNetworkPolicy
metadata: {name: api}
spec:
  nodeSelector: {matchLabels: {role: worker}}
  priority: 1
  interfaces: [eth1]
  ingress:
  - {action: Accept, networks: [198.51.100.0/24], nodes: {}, ports: [{protocol: TCP, port: 6443}]}
  - {name: rest, action: Deny}
---
apiVersion: namegate.io/v1alpha1
kind: NodeNetworkPolicy
metadata: {name: ports}
spec: {nodeSelector: {}, priority: 2, traffic: BeforeNAT, ingress: [{action: Deny, networks: [203.0.113.0/24]}], enforcement: Audit}
`)
	for _, c := range []struct {
		labels, from, to string
		verdict          explain.Verdict
		says             string
	}{
		{"role=worker", "198.51.100.7", "6443", explain.Allowed, "ingress: NodeNetworkPolicy api (spec.ingress[0])"},
		{"role=worker", "node/n1", "6443", explain.Allowed, "NodeNetworkPolicy api (spec.ingress[0])"},
		{"role=worker", "198.51.100.7", "80", explain.Denied, `Local Deny by NodeNetworkPolicy api (spec.ingress[1], "rest") from everywhere, on any, by eth1: decides`},
		{"role=worker", "shop/cart", "80", explain.Denied, "pods: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}}"},
		{"role=worker", "shop/cart", "6443", explain.Unknown, "NodeNetworkPolicy api (spec.ingress[0])"},
		{"role=db", "203.0.113.7", "30080", explain.WouldDeny, "only an Audit policy denies it, so it passes; enforced, it would be denied: NodeNetworkPolicy ports (spec.ingress[0])"},
		{"role=db", "198.51.100.7", "30080", explain.Allowed, "if 30080/tcp is a NodePort, the node forwards"},
		{"role=db", "2001:db8::1", "80", explain.Allowed, "no rule of a policy for nodes denies 2001:db8::1"},
	} {
		node, err := NodeWith(c.labels)
		fatal.If(t, err)
		from, err := explain.ParseFrom(c.from)
		fatal.If(t, err)
		port, err := explain.ParsePort(c.to)
		fatal.If(t, err)
		answers, err := m.AskFrom(node, from, port, Options{ClusterDomain: "cluster.local"})
		fatal.If(t, err)
		if text := strings.Join(answers[0].lines(), "\n"); len(answers) != 1 || answers[0].Verdict != c.verdict || !strings.Contains(text, c.says) || strings.Contains(text, "192.0.0") || strings.Contains(text, "add the node") {
			t.Errorf("%+v: %s", c, text)
		}
	}
}

// TestPoliciesForNodesAreSafe: a policy that denies to nodes has a safeguard, or is Audit.
func TestPoliciesForNodesAreSafe(t *testing.T) {
	for settings, want := range map[string]bool{"": true, "  enforcement: Audit": false, "  safeguard: {confirmWithin: 5m}": false, "  safeguard: {confirmWithin: 5}": false} {
		var found []string
		for _, f := range manifests(t, strings.Replace(ofNodes, "SETTINGS", settings, 1)).Lint(Options{ClusterDomain: "cluster.local"}) {
			if f.Reason == NoSafeguard {
				found = append(found, f.String())
			}
		}
		if (len(found) == 1 && strings.Contains(found[0], "nodenetworkpolicy workers") && strings.Contains(found[0], "safeguard: {confirmWithin: 5m}")) != want || len(found) > 1 {
			t.Errorf("%q: %q", settings, found)
		}
	}
}

// tiers are the manifests of testdata/tiers.yaml: policies of all four kinds.
func tiers(t *testing.T) *Manifests {
	t.Helper()
	m, err := Read([]string{"testdata/tiers.yaml"}, nil, false)
	fatal.If(t, err)
	return m
}

// TestAskOfAuditBesideClusterPolicies: a cluster policy and a NetworkPolicy isolate the pod, so
// the match of its Audit policy opens nothing.
func TestAskOfAuditBesideClusterPolicies(t *testing.T) {
	file := filepath.Join(t.TempDir(), "all.yaml")
	fatal.If(t, os.WriteFile(file, []byte(`
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop}, spec: {containers: [{name: c}]}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: none, namespace: shop}, spec: {podSelector: {}, policyTypes: [Egress]}}
---
{apiVersion: namegate.io/v1alpha1, kind: ClusterFQDNNetworkPolicy, metadata: {name: c}, spec: {tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Deny, networks: [192.0.2.0/24]}]}}
---
{apiVersion: namegate.io/v1alpha1, kind: FQDNNetworkPolicy, metadata: {name: watch, namespace: shop}, spec: {podSelector: {}, enforcement: Audit, egress: [{matches: [{name: www.test}]}]}}
`), 0o600))
	m, err := Read([]string{file}, nil, false)
	fatal.If(t, err)
	q, err := explain.ParseTarget("www.test:443")
	fatal.If(t, err)
	if got := m.Ask(m.PodsNamed("shop", "web")[0], q, Options{ClusterDomain: "cluster.local"}).String(); !strings.Contains(got, "denied") || !strings.Contains(got, "only the Audit policy shop/watch covers www.test, which opens nothing") {
		t.Error(got)
	}
}

// TestNodeTies: policies for nodes of equal priority tie where they have one traffic and may select one node.
func TestNodeTies(t *testing.T) {
	for _, c := range []struct {
		other string
		want  bool
	}{
		{"nodeSelector: {}, priority: 1, egress: [{action: Accept, networks: [192.0.2.0/24]}]", true},
		{"nodeSelector: {}, priority: 2, egress: [{action: Accept, networks: [192.0.2.0/24]}]", false},
		{"nodeSelector: {}, priority: 1, ingress: [{action: Accept, networks: [192.0.2.0/24]}]", false},
		{"nodeSelector: {}, priority: 1, traffic: Forwarded, egress: [{action: Accept, networks: [192.0.2.0/24]}]", false},
		{"nodeSelector: {matchLabels: {role: db}}, priority: 1, egress: [{action: Accept, networks: [192.0.2.0/24]}]", false},
	} {
		text := strings.Replace(ofNodes, "SETTINGS", "  safeguard: {}", 1) + "---\napiVersion: namegate.io/v1alpha1\nkind: NodeNetworkPolicy\nmetadata: {name: other}\nspec: {" + c.other + "}\n"
		var found []string
		for _, f := range manifests(t, text).Lint(Options{ClusterDomain: "cluster.local"}) {
			if f.Reason == PriorityTie {
				found = append(found, f.String())
			}
		}
		if len(found) > 0 != c.want || c.want && !strings.Contains(found[0], "nodenetworkpolicy other at stdin:21 has priority 1 too, and comes first by its name; its spec.egress[0] (Accept) and spec.egress[1] (Deny)") {
			t.Errorf("%s: %q", c.other, found)
		}
	}
}
