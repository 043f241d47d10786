package check

import (
	"os"
	"path/filepath"
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
