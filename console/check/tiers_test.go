package check

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/testkit/fatal"
)

// tiers are the manifests of testdata/tiers.yaml: policies of all four kinds.
func tiers(t *testing.T) *Manifests {
	t.Helper()
	m, err := Read([]string{"testdata/tiers.yaml"}, nil, false)
	fatal.If(t, err)
	return m
}

// TestClusterNetworkPolicies: those of the standard are read strictly, and of its version.
func TestClusterNetworkPolicies(t *testing.T) {
	const head = "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata: {name: p}\nspec:\n  tier: Admin\n  priority: 1\n  subject: {namespaces: {}}\n"
	for text, want := range map[string][]string{
		head: nil,
		head + "  egress:\n  - action: Deny\n    to:\n    - networks: [192.0.2.1]\n": {"stdin:11: error: clusternetworkpolicy p: spec.egress[0].to[0].networks[0]: "},
		head + "  egress:\n  - action: Deny\n    too: []\n":                          {"stdin:9: error: clusternetworkpolicy p: spec.egress[0]: "},
		strings.Replace(head, "v1alpha2", "v1beta1", 1):                              {"stdin:1: error: clusternetworkpolicy p: apiVersion policy.networking.k8s.io/v1beta1 is unknown for ClusterNetworkPolicy; write policy.networking.k8s.io/v1alpha2"},
		strings.Replace(head, "name: p", "name: P", 1):                               {`stdin:1: error: clusternetworkpolicy P: metadata.name "P": `},
		head + "---\n" + head: {"stdin:11: error: clusternetworkpolicy p: metadata.name: a policy of that name is in stdin:3; remove or rename one of them"},
		strings.Replace(head, "tier: Admin", "tier: First", 1):                                           {"stdin:5: error: clusternetworkpolicy p: spec.tier: "},
		"apiVersion: policy.networking.k8s.io/v1alpha1\nkind: AdminNetworkPolicy\nmetadata: {name: p}\n": {"warning: no FQDNNetworkPolicy of namegate.io/v1alpha1 in 1 file; is this the right path?"},
	} {
		var got []string
		for _, line := range lint(t, text) {
			if !strings.Contains(line, "not enforced yet") {
				got = append(got, line)
			}
		}
		if !slices.EqualFunc(want, got, func(want, got string) bool { return strings.HasPrefix(got, want) }) {
			t.Errorf("%s\n%q, want %q", text, got, want)
		}
	}
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
