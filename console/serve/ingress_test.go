package serve_test

import (
	"context"
	"encoding/json"
	"io"
	"net/url"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/explain"
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

// explainedFrom is explained for connections from a source.
func explainedFrom(t *testing.T, w *consoletest.World, pod, from, port string) explain.Explanation {
	t.Helper()
	resp, err := w.Agent("", serve.Everything{}).Ask(context.Background(), console.ExplainPath, url.Values{"pod": {pod}, "from": {from}, "port": {port}})
	fatal.If(t, err)
	text, err := io.ReadAll(resp.Body)
	fatal.If(t, err)
	var e explain.Explanation
	fatal.If(t, json.Unmarshal(text, &e), string(text))
	return e
}

// TestPolicyWithIngressAlone: a ClusterNetworkPolicy that has rules for ingress alone is a row too.
func TestPolicyWithIngressAlone(t *testing.T) {
	w := inboundWorld(t, "{action: Deny, from: [{namespaces: {}}]}", consoletest.Pod("shop", "cart", "10.1.0.10", nil), consoletest.Pod("shop", "batch", "10.1.0.12", nil))
	want := []console.PolicyRow{{ID: "clusternetworkpolicy:inbound", Kind: "ClusterNetworkPolicy", Name: "inbound", Tier: "Baseline", Enforcement: "Enforce", Selected: 2}}
	diff.Error(t, want, policyRows(t, w, serve.Everything{}, nil))
	diff.Empty(t, policyRows(t, w, consoletest.Some{"shop"}, url.Values{"namespace": {"shop"}}), "for callers who may not read the kind")
}

// TestPodWithoutItsNamedPort: rules for ingress none of which is about a port of the pod leave nothing to evaluate.
// A pod without an object may reach nothing, and nothing may reach it, by no NetworkPolicy.
func TestPodWithoutItsNamedPort(t *testing.T) {
	w := inboundWorld(t, "{action: Deny, from: [{namespaces: {}}], protocols: [{destinationNamedPort: http}]}", consoletest.Pod("shop", "cart", "10.1.0.10", nil))
	_, e := explained(t, w, serve.Everything{}, "shop/cart", "www.example.org:443")
	if e.Verdict != explain.Allowed || e.Reason != "no policy for egress selects the pod: everything is allowed" {
		t.Errorf("egress: %s: %s", e.Verdict, e.Reason)
	}
	if e := explainedFrom(t, w, "shop/cart", "192.0.2.9", "8080"); e.Verdict != explain.Allowed {
		t.Errorf("ingress: %s: %s", e.Verdict, e.Reason)
	}
	orphan := consoletest.Pod("shop", "gone", "10.1.0.13", nil)
	orphan.PodRef = orphan.PodRef.Orphan()
	w.Snap = w.Snap.WithOrphans([]policy.Pod{orphan}, w.Snap, true)
	if _, e := explained(t, w, serve.Everything{}, orphan.PodRef.String(), "192.0.2.9:443"); e.Verdict != explain.Denied {
		t.Errorf("a pod without an object: %s: %s", e.Verdict, e.Reason)
	}
	if e := explainedFrom(t, w, orphan.PodRef.String(), "192.0.2.9", "8080"); e.Verdict != explain.Denied || e.Reason != "the pod has no object any more: nothing may reach it" || len(e.NetworkPolicies) > 0 {
		t.Errorf("to a pod without an object: %s: %s, by %v", e.Verdict, e.Reason, e.NetworkPolicies)
	}
	resp, err := w.Agent("", serve.Everything{}).Ask(context.Background(), console.PodsPath, nil)
	fatal.If(t, err)
	if text, err := io.ReadAll(resp.Body); err != nil || strings.Contains(string(text), "Audit") || strings.Contains(string(text), "networkPolicies") {
		t.Errorf("%v: %s", err, text)
	}
}

// TestContestedForOneDirection: an address that several pods claim is closed for the direction for which policies
// select one of them, for all of these.
func TestContestedForOneDirection(t *testing.T) {
	w := consoletest.New("node-1")
	closed := &networkingv1.NetworkPolicy{}
	closed.Namespace, closed.Name = "shop", "closed"
	closed.Spec.PodSelector.MatchLabels, closed.Spec.PolicyTypes = map[string]string{"app": "cart"}, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	w.NetworkPolicies = []*networkingv1.NetworkPolicy{closed}
	w.Input.Policies, w.Input.NetworkPolicies, w.Input.EnforceNetworkPolicies = nil, w.NetworkPolicies, true
	w.Input.Pods = []policy.Pod{consoletest.Pod("shop", "cart", "10.1.0.10", nil, "app=cart"), consoletest.Pod("shop", "till", "10.1.0.10", nil), consoletest.Pod("shop", "front", "10.1.0.11", nil)}
	w.Compile()
	for _, pod := range []string{"shop/cart", "shop/till"} {
		if e := explainedFrom(t, w, pod, "front", "8080"); e.Verdict != explain.Unknown || !strings.HasPrefix(e.Reason, "other pods claim 10.1.0.10 too") {
			t.Errorf("%s from front: %s: %s", pod, e.Verdict, e.Reason)
		}
		if _, e := explained(t, w, serve.Everything{}, pod, "192.0.2.9:443"); e.Verdict != explain.Allowed {
			t.Errorf("%s to an address: %s: %s", pod, e.Verdict, e.Reason)
		}
	}
}

// TestExplainFromOfPodsWithoutAddress: neither end has to have an address.
func TestExplainFromOfPodsWithoutAddress(t *testing.T) {
	w := inboundWorld(t, "{action: Deny, from: [{namespaces: {}}]}", consoletest.Pod("shop", "cart", "10.1.0.10", nil), consoletest.Pod("shop", "coming", "", nil),
		consoletest.Pod("shop", "agent", "", func(p *policy.Pod) { p.HostNetwork, p.NodeName = true, "node-2" }))
	for _, c := range [][2]string{{"shop/coming", "cart"}, {"shop/cart", "coming"}, {"shop/cart", "agent"}} {
		if e := explainedFrom(t, w, c[0], c[1], "8080"); e.Verdict != explain.Unknown || !strings.Contains(e.Reason, "has no address of a family of the pod's") {
			t.Errorf("%v: %s: %s", c, e.Verdict, e.Reason)
		}
	}
}
