package serve_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/client"
	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/console/print"
	"github.com/namegate/namegate/console/serve"
	"github.com/namegate/namegate/crds/v1alpha1"
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
	unselecting.Spec.Egress[0].ServerName = v1alpha1.ServerNameRequire
	w.Input.Policies = append(w.Input.Policies, unselecting)
	diff.Error(t, []console.PolicyRow{base, watch}, policyRows(t, w, consoletest.Some{"shop"}, url.Values{"namespace": {"shop"}, "selecting": {"1"}}), "those that select")
	if rows := policyRows(t, w, consoletest.Some{"shop"}, url.Values{"namespace": {"shop"}}); len(rows) != 3 || rows[1].ID != "shop/later" || rows[1].Selected != 0 || rows[1].Matches[0].ServerName != "Require" {
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

// TestQuestionsAboutNodes: a node is for callers who may get the cluster kind, and its own agent
// answers.
func TestQuestionsAboutNodes(t *testing.T) {
	ask := func(v serve.Viewer, path, node string) error {
		a := consoletest.New("node-1").Agent("", v)
		query := url.Values{"node": {node}, "to": {"www.example.org:443"}}
		if path == console.GrantsPath {
			_, _, err := client.Gather[console.GrantRow](context.Background(), []client.Agent{a}, path, query)
			return err
		}
		answers, _, err := client.Gather[explain.Explanation](context.Background(), []client.Agent{a}, path, query)
		if err == nil && (answers[0].Pod != "node node-1" || answers[0].Reason != "no policy selects the node: everything is allowed") {
			t.Errorf("%+v", answers[0])
		}
		return err
	}
	for _, path := range []string{console.ExplainPath, console.GrantsPath} {
		if err := ask(serve.Everything{}, path, "node-1"); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		for status, err := range map[int]error{http.StatusForbidden: ask(consoletest.Some{"shop"}, path, "node-1"), http.StatusNotFound: ask(serve.Everything{}, path, "node-2")} {
			var r *console.Refusal
			if !errors.As(err, &r) || r.Status != status {
				t.Errorf("%s: %v, want status %d", path, err, status)
			}
		}
	}
}

// TestFailsafesInStatus: the status has the table of failsafes, a line for each row, and what is missing,
// for callers who may get the cluster kind.
func TestFailsafesInStatus(t *testing.T) {
	node := &policy.Node{Missing: "no resolver of the host"}
	for _, networks := range []string{"192.0.2.1/32", "192.0.2.1/32 192.0.2.2/32 192.0.2.3/32 192.0.2.4/32 192.0.2.5/32 192.0.2.6/32 192.0.2.16/28 198.51.100.0/24 2001:db8::1/128 2001:db8::2/128"} {
		f := policy.Failsafe{Name: "nodes", Ports: []policy.PortRange{{Protocol: policy.TCP, First: 10250, Last: 10250}}, Yields: len(node.Failsafes) == 1}
		for n := range strings.FieldsSeq(networks) {
			f.Networks = append(f.Networks, netip.MustParsePrefix(n))
		}
		node.Failsafes = append(node.Failsafes, f)
	}
	w := consoletest.New("node-1")
	w.Status.Failsafes = console.FailsafesOf(node)
	shown := func(v serve.Viewer) string {
		answers, _, err := client.Gather[console.Status](context.Background(), []client.Agent{w.Agent("", v)}, console.StatusPath, nil)
		fatal.If(t, err)
		var out bytes.Buffer
		fatal.If(t, (&print.Printer{Out: &out, Format: "table"}).Statuses(answers, true))
		return strings.Join(strings.Fields(out.String()), " ")
	}
	all := shown(serve.Everything{})
	for _, want := range []string{
		"failsafe always: every protocol to and from the loopback interface; neighbor discovery", "failsafe nodes: TCP 10250 to 192.0.2.1 ",
		"192.0.2.6, 192.0.2.16/28, 198.51.100.0/24 and 2 more, unless a rule lists the address",
		"failsafe unknown no resolver of the host; until then this node accepts no policies for nodes",
	} {
		diff.Has(t, want, all, "not in")
	}
	if console.FailsafesOf(nil) != nil {
		t.Error("failsafes of no node")
	}
	if text := shown(everywhere{}); strings.Contains(text, "failsafe") {
		t.Error(text)
	}
}

// everywhere sees all namespaces and no cluster policy.
type everywhere struct{ serve.Everything }

func (everywhere) May(_ context.Context, r serve.Right) (bool, error) {
	return r == serve.RowsOf(""), nil
}

// TestGrantsOfServerNames: a grant by a rule that requires the server name says so.
func TestGrantsOfServerNames(t *testing.T) {
	w := consoletest.New("node-1")
	rule := policy.Rule{ServerName: true}
	w.Open = w.Open[:1]
	for _, id := range []policy.RuleID{"", rule.NewID()} {
		w.Open[0].Rule = id
		answers, _, err := client.Gather[console.GrantRows](context.Background(), []client.Agent{w.Agent("", serve.Everything{})}, console.GrantsPath, nil)
		fatal.If(t, err)
		var out, warn bytes.Buffer
		p := print.Printer{Out: &out, Warn: &warn, Now: func() time.Time { return consoletest.Noon }, Format: print.FormatTable}
		fatal.If(t, p.Grants(answers, 1))
		if row := answers[0].Grants[0]; (row.ServerName == "Require") != (id != "") || strings.Contains(out.String(), "tcp/443, serverName: Require") != (id != "") {
			t.Errorf("%q: %+v\n%s", id, row, out.String())
		}
	}
}
