package serve_test

import (
	"net/url"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/serve"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/consoletest"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// inboundWorld is a node with pods that a ClusterNetworkPolicy with one rule for ingress selects.
func inboundWorld(t *testing.T, rule string, pods ...policy.Pod) *consoletest.World {
	t.Helper()
	w := consoletest.New("node-1")
	standard := &unstructured.Unstructured{}
	fatal.If(t, yaml.Unmarshal([]byte("metadata: {name: inbound}\nspec: {tier: Baseline, priority: 7, subject: {namespaces: {}}, ingress: ["+rule+"]}"), &standard.Object))
	w.Input.Policies, w.Input.Remote, w.NetworkPolicies = nil, nil, nil
	w.Input.Pods, w.Input.ClusterNetworkPolicies = pods, []*unstructured.Unstructured{standard}
	w.Compile()
	return w
}

// TestPolicyWithIngressAlone: a ClusterNetworkPolicy that has rules for ingress alone is a row too.
func TestPolicyWithIngressAlone(t *testing.T) {
	w := inboundWorld(t, "{action: Deny, from: [{namespaces: {}}]}", consoletest.Pod("shop", "cart", "10.1.0.10", nil), consoletest.Pod("shop", "batch", "10.1.0.12", nil))
	want := []console.PolicyRow{{ID: "clusternetworkpolicy:inbound", Kind: "ClusterNetworkPolicy", Name: "inbound", Tier: "Baseline", Enforcement: "Enforce", Selected: 2}}
	diff.Error(t, want, policyRows(t, w, serve.Everything{}, nil))
	diff.Empty(t, policyRows(t, w, consoletest.Some{"shop"}, url.Values{"namespace": {"shop"}}), "for callers who may not read the kind")
}
