package serve_test

import (
	"context"
	"net/url"
	"testing"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/client"
	"github.com/namegate/namegate/console/serve"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/consoletest"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// policyRows returns the answer to PoliciesPath.
func policyRows(t *testing.T, w *consoletest.World, v serve.Viewer, query url.Values) []console.PolicyRow {
	t.Helper()
	answers, _, err := client.Gather[console.PolicyRows](context.Background(), []client.Agent{w.Agent("", v)}, console.PoliciesPath, query)
	fatal.If(t, err)
	return answers[0].Policies
}

// TestPolicies: policies with their matches, how many pods they select, and their problems.
func TestPolicies(t *testing.T) {
	w := consoletest.New("node-1")
	w.Snap.Problems = append(w.Snap.Problems,
		policy.Problem{Object: "policy shop/base", Reason: policy.ReasonPartiallyInvalid, Path: "spec.egress[0]", Message: "no"},
		policy.Problem{Object: "pod shop/base", Reason: policy.ReasonHostNetwork, Message: "a pod"})
	base := console.PolicyRow{
		ID: "shop/base", Kind: "FQDNNetworkPolicy", Namespace: "shop", Name: "base", Tier: "Namespace", Enforcement: "Enforce", Selected: 1,
		Matches:  []console.PolicyMatch{{Path: "spec.egress[0].matches[0]", Match: "www.example.org"}, {Path: "spec.egress[0].matches[1]", Match: "*.cdn.test"}},
		Problems: []console.PolicyProblem{{Reason: policy.ReasonPartiallyInvalid, Path: "spec.egress[0]", Message: "no"}},
	}
	watch := console.PolicyRow{
		ID: "shop/watch", Kind: "FQDNNetworkPolicy", Namespace: "shop", Name: "watch", Tier: "Namespace", Enforcement: "Audit", Selected: 1,
		Matches: []console.PolicyMatch{{Path: "spec.egress[0].matches[0]", Match: "bank.test"}},
	}
	closed := console.PolicyRow{ID: "pay/closed", Kind: "FQDNNetworkPolicy", Namespace: "pay", Name: "closed", Tier: "Namespace", Enforcement: "Enforce", Selected: 1}
	diff.Error(t, []console.PolicyRow{closed, base, watch}, policyRows(t, w, serve.Everything{}, nil), "of all namespaces")
	diff.Error(t, []console.PolicyRow{base, watch}, policyRows(t, w, consoletest.Some{"shop"}, url.Values{"namespace": {"shop"}}), "of a viewer of shop")
	unselecting := w.Input.Policies[1].DeepCopy()
	unselecting.Name, unselecting.Spec.PodSelector.MatchLabels = "later", map[string]string{"app": "later"}
	w.Input.Policies = append(w.Input.Policies, unselecting)
	diff.Error(t, []console.PolicyRow{base, watch}, policyRows(t, w, consoletest.Some{"shop"}, url.Values{"namespace": {"shop"}, "selecting": {"1"}}), "those that select")
	if rows := policyRows(t, w, consoletest.Some{"shop"}, url.Values{"namespace": {"shop"}}); len(rows) != 3 || rows[1].ID != "shop/later" || rows[1].Selected != 0 {
		t.Errorf("a policy that selects no pod is not a row without pods: %+v", rows)
	}
	for _, query := range []url.Values{{}, {"namespace": {"pay"}}} {
		if _, _, err := client.Gather[console.PolicyRows](context.Background(), []client.Agent{w.Agent("", consoletest.Some{"shop"})}, console.PoliciesPath, query); console.ExitCode(err) != console.ExitForbidden {
			t.Errorf("a viewer of shop asks for %v: %v", query, err)
		}
	}
}

// TestPoliciesOfTheCluster: cluster policies are rows for callers who may read their kind.
func TestPoliciesOfTheCluster(t *testing.T) {
	w := consoletest.ClusterWorld("198.51.100.0/24")
	ours := console.PolicyRow{
		ID: "no-pastes", Kind: "ClusterFQDNNetworkPolicy", Name: "no-pastes", Tier: "Admin", Enforcement: "Enforce", Selected: 2,
		Matches: []console.PolicyMatch{{Path: "spec.egress[0].matches[0]", Match: "**.paste.test"}, {Path: "spec.egress[1].matches[0]", Match: "registry.test"}},
	}
	standard := console.PolicyRow{ID: "clusternetworkpolicy:standard-rest", Kind: "ClusterNetworkPolicy", Name: "standard-rest", Tier: "Baseline", Enforcement: "Enforce", Selected: 2}
	query := url.Values{"namespace": {"shop"}, "selecting": {"1"}}
	for _, c := range []struct {
		viewer serve.Viewer
		want   []console.PolicyRow
	}{
		{consoletest.Some{"shop"}, nil}, {consoletest.Some{"shop", "cluster"}, []console.PolicyRow{ours}}, {consoletest.Some{"shop", "standard"}, []console.PolicyRow{standard}},
		{serve.Everything{}, []console.PolicyRow{standard, ours}},
	} {
		var got []console.PolicyRow
		for _, row := range policyRows(t, w, c.viewer, query) {
			if row.Namespace == "" {
				got = append(got, row)
			}
		}
		diff.Error(t, c.want, got, c.viewer)
	}
}
