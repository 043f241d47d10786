package console

import (
	"context"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
)

// policyRows returns the answer to PoliciesPath.
func policyRows(t *testing.T, w *world, v Viewer, query url.Values) []PolicyRow {
	t.Helper()
	replies, _, err := Gather[PolicyRows](context.Background(), []Agent{agentOf("", w, v)}, PoliciesPath, query)
	fatal.If(t, err)
	return replies[0].Value.Policies
}

// TestPolicies: policies with their matches, how many pods they select, and their problems.
func TestPolicies(t *testing.T) {
	w := newWorld(t, "node-1")
	w.snap.Problems = append(w.snap.Problems,
		policy.Problem{Object: "policy shop/base", Reason: policy.ReasonPartiallyInvalid, Path: "spec.egress[0]", Message: "no"},
		policy.Problem{Object: "pod shop/base", Reason: policy.ReasonHostNetwork, Message: "a pod"})
	base := PolicyRow{
		ID: "shop/base", Kind: "FQDNNetworkPolicy", Namespace: "shop", Name: "base", Tier: "Namespace", Enforcement: "Enforce", Selected: 1,
		Matches:  []PolicyMatch{{"spec.egress[0].matches[0]", "www.example.org"}, {"spec.egress[0].matches[1]", "*.cdn.test"}},
		Problems: []PolicyProblem{{Reason: policy.ReasonPartiallyInvalid, Path: "spec.egress[0]", Message: "no"}},
	}
	watch := PolicyRow{
		ID: "shop/watch", Kind: "FQDNNetworkPolicy", Namespace: "shop", Name: "watch", Tier: "Namespace", Enforcement: "Audit", Selected: 1,
		Matches: []PolicyMatch{{"spec.egress[0].matches[0]", "bank.test"}},
	}
	closed := PolicyRow{ID: "pay/closed", Kind: "FQDNNetworkPolicy", Namespace: "pay", Name: "closed", Tier: "Namespace", Enforcement: "Enforce", Selected: 1}
	if d := cmp.Diff([]PolicyRow{closed, base, watch}, policyRows(t, w, Everything{}, nil)); d != "" {
		t.Errorf("of all namespaces: -want +got\n%s", d)
	}
	if d := cmp.Diff([]PolicyRow{base, watch}, policyRows(t, w, some{"shop"}, url.Values{"namespace": {"shop"}})); d != "" {
		t.Errorf("of a viewer of shop: -want +got\n%s", d)
	}
	unselecting := w.policies[1].DeepCopy()
	unselecting.Name, unselecting.Spec.PodSelector.MatchLabels = "later", map[string]string{"app": "later"}
	w.policies = append(w.policies, *unselecting)
	if d := cmp.Diff([]PolicyRow{base, watch}, policyRows(t, w, some{"shop"}, url.Values{"namespace": {"shop"}, "selecting": {"1"}})); d != "" {
		t.Errorf("those that select: -want +got\n%s", d)
	}
	if rows := policyRows(t, w, some{"shop"}, url.Values{"namespace": {"shop"}}); len(rows) != 3 || rows[1].ID != "shop/later" || rows[1].Selected != 0 {
		t.Errorf("a policy that selects no pod is not a row without pods: %+v", rows)
	}
	for _, query := range []url.Values{{}, {"namespace": {"pay"}}} {
		if _, _, err := Gather[PolicyRows](context.Background(), []Agent{agentOf("", w, some{"shop"})}, PoliciesPath, query); ExitCode(err) != ExitForbidden {
			t.Errorf("a viewer of shop asks for %v: %v", query, err)
		}
	}
}

// TestPoliciesOfTheCluster: cluster policies are rows for callers who may read their kind.
func TestPoliciesOfTheCluster(t *testing.T) {
	w := clusterWorld(t, "198.51.100.0/24")
	ours := PolicyRow{
		ID: "no-pastes", Kind: "ClusterFQDNNetworkPolicy", Name: "no-pastes", Tier: "Admin", Enforcement: "Enforce", Selected: 2,
		Matches: []PolicyMatch{{"spec.egress[0].matches[0]", "**.paste.test"}, {"spec.egress[1].matches[0]", "registry.test"}},
	}
	standard := PolicyRow{ID: "clusternetworkpolicy:standard-rest", Kind: "ClusterNetworkPolicy", Name: "standard-rest", Tier: "Baseline", Enforcement: "Enforce", Selected: 2}
	query := url.Values{"namespace": {"shop"}, "selecting": {"1"}}
	for _, c := range []struct {
		viewer Viewer
		want   []PolicyRow
	}{
		{some{"shop"}, nil}, {some{"shop", "cluster"}, []PolicyRow{ours}}, {some{"shop", "standard"}, []PolicyRow{standard}},
		{Everything{}, []PolicyRow{standard, ours}},
	} {
		var got []PolicyRow
		for _, row := range policyRows(t, w, c.viewer, query) {
			if row.Namespace == "" {
				got = append(got, row)
			}
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%v: -want +got\n%s", c.viewer, d)
		}
	}
}
