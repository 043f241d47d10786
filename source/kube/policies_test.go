package kube

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

func set(t *testing.T, u *unstructured.Unstructured, value any, path ...string) *unstructured.Unstructured {
	t.Helper()
	fatal.If(t, unstructured.SetNestedField(u.Object, value, path...))
	return u
}

func TestReadPolicy(t *testing.T) {
	u := set(t, aPolicy("p", "www.example.org"), int64(7), "metadata", "generation")
	set(t, u, map[string]any{lastApplied: "{}", "kept": "x"}, "metadata", "annotations")
	set(t, u, []any{map[string]any{"manager": "kubectl"}}, "metadata", "managedFields")
	set(t, u, []any{map[string]any{"protocol": "TCP", "port": int64(443), "endPort": int64(444)}}, "spec", "egress2")
	set(t, u, []any{map[string]any{"type": "Accepted", "status": "True"}}, "status", "conditions")
	e := readPolicy(u, nil)
	if len(e.problems) > 0 {
		t.Fatal(e.problems)
	}
	want := &v1alpha1.FQDNNetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "namegate.io/v1alpha1", Kind: "FQDNNetworkPolicy"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", Generation: 7, Annotations: map[string]string{"kept": "x"}},
		Spec: v1alpha1.FQDNNetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Egress:      []v1alpha1.EgressRule{{Matches: []v1alpha1.Match{{Name: new("www.example.org")}}}},
			TTL:         v1alpha1.TTL{InUse: v1alpha1.InUseRenew},
		},
	}
	want.Status.Conditions = []metav1.Condition{{Type: "Accepted", Status: metav1.ConditionTrue}}
	diff.Error(t, want, e.policy)
	if readPolicy(aNode("x", "192.0.2.1"), nil) != nil {
		t.Error("a node was read as a policy")
	}
}

func TestReadBrokenPolicy(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(*unstructured.Unstructured)
		reason  string
		says    string
		selects bool // it stays, with nothing allowed
	}{
		{"no spec", func(u *unstructured.Unstructured) { delete(u.Object, "spec") }, policy.ReasonInvalid, "write one, or {}", false},
		{"a spec that is a list", func(u *unstructured.Unstructured) { u.Object["spec"] = []any{} }, policy.ReasonInvalid, "write one, or {}", false},
		{"no selector", func(u *unstructured.Unstructured) { set(t, u, nil, "spec", "podSelector") }, policy.ReasonInvalid, "write one, or {}", false},
		{"a selector that is none", func(u *unstructured.Unstructured) { set(t, u, "web", "spec", "podSelector") }, policy.ReasonInvalid, "selects no pod", false},
		{"rules that are none", func(u *unstructured.Unstructured) { set(t, u, "all", "spec", "egress") }, policy.ReasonPartiallyInvalid, "allows nothing", true},
		{"a setting that is none", func(u *unstructured.Unstructured) { set(t, u, int64(1), "spec", "denied") }, policy.ReasonPartiallyInvalid, "allows nothing", true},
		{"a status that is none", func(u *unstructured.Unstructured) { u.Object["status"] = "x" }, policy.ReasonPartiallyInvalid, "allows nothing", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := set(t, aPolicy("p", "www.example.org"), "Audit", "spec", "enforcement")
			c.change(u)
			e := readPolicy(u, nil)
			if len(e.problems) != 1 || e.problems[0].Object != "policy shop/p" || e.problems[0].Reason != c.reason || !strings.Contains(e.problems[0].Message, c.says) {
				t.Errorf("problems %v", e.problems)
			}
			diff.MustEqual(t, c.selects, e.policy != nil, "policy", e.policy)
			if e.policy != nil && (e.policy.Spec.PodSelector.MatchLabels["app"] != "web" || len(e.policy.Spec.Egress) > 0 || e.policy.Spec.Enforcement != "Audit") {
				t.Errorf("spec %v", e.policy.Spec)
			}
			policies, problems := listPolicies([]*policyEntry{e})
			if len(policies) > 1 || len(problems) != 1 {
				t.Errorf("listed as %v, %v", policies, problems)
			}
		})
	}
}

// TestUnchangedSpecsAreShared: by their memory the compiler sees that nothing changed.
func TestUnchangedSpecsAreShared(t *testing.T) {
	before := readPolicy(aPolicy("p", "www.example.org"), nil)
	after := readPolicy(set(t, aPolicy("p", "www.example.org"), "8", "metadata", "resourceVersion"), before)
	if &before.policy.Spec.Egress[0] != &after.policy.Spec.Egress[0] || after.policy.ResourceVersion != "8" {
		t.Error("a spec that did not change has memory of its own")
	}
	if other := readPolicy(aPolicy("p", "example.org"), before); *other.policy.Spec.Egress[0].Matches[0].Name != "example.org" {
		t.Error("a change was overlooked")
	}
}
