package serve_test

import (
	"bytes"
	"context"
	"io"
	"net/url"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/client"
	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/console/print"
	"github.com/namegate/namegate/console/serve"
	"github.com/namegate/namegate/policy/netpolicyfor"
	"github.com/namegate/namegate/testkit/consoletest"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestClusterPoliciesAreHidden: callers learn of each kind of cluster policies what decided and
// the tier; the names of policies, rules and matches only with the right to read the kind. The
// right to see all namespaces is not that right.
func TestClusterPoliciesAreHidden(t *testing.T) {
	w := consoletest.ClusterWorld("198.51.100.0/33")
	read := func(v serve.Viewer, path string, query url.Values) string {
		t.Helper()
		resp, err := w.Agent("", v).Ask(context.Background(), path, query)
		fatal.If(t, err)
		text, err := io.ReadAll(resp.Body)
		fatal.If(t, err)
		return string(text)
	}
	everything := func(v serve.Viewer) (text string) {
		for _, to := range []string{"x.paste.test:443", "registry.test:443", "198.51.100.1:443", "203.0.113.5:443", "203.0.113.6:443"} {
			for _, pod := range []string{"shop/cart-7d9f", "shop/batch"} {
				text += read(v, console.ExplainPath, url.Values{"pod": {pod}, "to": {to}})
			}
		}
		return text + read(v, console.GrantsPath, url.Values{}) + read(v, console.AuditPath, url.Values{}) + read(v, console.StatusPath, url.Values{}) + read(v, console.PodsPath, url.Values{})
	}
	ours, theirs := []string{"no-pastes", "pastes of", "no-gone", "198.51.100.0/33"}, []string{"standard-rest"}
	for what, c := range map[string]struct {
		viewer        serve.Viewer
		hidden, shown []string
	}{
		"nothing of the cluster": {consoletest.Some{"", "shop"}, append(ours, theirs...), []string{"a cluster policy (Admin)", `{"tier":"Baseline","enforcement":"Enforce"}`}},
		"ours":                   {consoletest.Some{"", "shop", "cluster"}, theirs, append(ours, `{"tier":"Baseline","enforcement":"Enforce"}`)},
		"the standard's":         {consoletest.Some{"", "shop", "standard"}, ours, append(theirs, "a cluster policy (Admin)")},
		"all":                    {serve.Everything{}, []string{"a cluster policy"}, append(ours, theirs...)},
	} {
		text := everything(c.viewer)
		for _, secret := range c.hidden {
			if at := strings.Index(text, secret); at >= 0 {
				t.Errorf("who may read %s is told %q: %s", what, secret, text[max(0, at-300):at+50])
			}
		}
		for _, word := range c.shown {
			diff.Has(t, word, text, "who may read", what, "not told")
		}
	}
	text, e := explained(t, w, consoletest.Some{"shop"}, "shop/batch", "x.paste.test:443")
	if e.Verdict != explain.Denied || e.Reason != "a cluster policy (Admin) denies x.paste.test: a part of it cannot be read" {
		t.Errorf("%s", text)
	}
}

// TestLinesWithoutClusterPolicies: a line without the names of cluster policies is a line, with
// all else as it was, and a line that names none is untouched.
func TestLinesWithoutClusterPolicies(t *testing.T) {
	w := consoletest.ClusterWorld("198.51.100.0/33")
	got := askedFor(t, w.Agent("", consoletest.Some{"shop", "pay"}), "namespace=shop")
	lines, was := strings.SplitAfter(got, "\n"), strings.SplitAfter(string(w.Recent), "\n")
	if len(lines) != 5 || lines[3] != was[3] {
		t.Fatalf("%s", got)
	}
	for i, want := range map[int][]string{
		0: {`"matches":[{"policy":"a cluster policy","path":"","match":""},{"policy":"shop/base","path":"spec.egress[0].matches[0]","match":"**.no-match.test"}]`, `"question":{"name":"x0.test","type":"A","class":"IN"}`},
		1: {`"policies":["a cluster policy","shop/base"]`, `{"asked":"2026-05-01T11:59:00Z","match":{"policy":"a cluster policy","path":"","match":""},"name":"own.test"}`, "secret.pay.test"},
		2: {`"policy":"a cluster policy (Admin)"`, `"tier":"Admin"`, `"policies":["shop/base"]`},
	} {
		if !strings.HasPrefix(lines[i], `{"v":1,"kind":"`) {
			t.Errorf("%s", lines[i])
		}
		for _, text := range want {
			diff.Has(t, text, lines[i])
		}
		if l, err := audit.ParseLine([]byte(lines[i])); err != nil || l.Pod.Name != "cart-7d9f" {
			t.Errorf("%v: %s", err, lines[i])
		}
	}
	diff.Equal(t, string(w.Recent), askedFor(t, w.Agent("", consoletest.Some{"shop", "pay", "cluster", "standard"}), "namespace=shop"), "who may read all gets")
}

// TestPodsOfClusterPolicies: a pod that only a cluster policy selects is one that rules are
// enforced for.
func TestPodsOfClusterPolicies(t *testing.T) {
	w := consoletest.ClusterWorld("198.51.100.0/33")
	answers, _, err := client.Gather[console.PodRows](t.Context(), []client.Agent{w.Agent("", serve.Everything{})}, console.PodsPath, nil)
	fatal.If(t, err)
	diff.Equal(t, 2, len(answers[0].Pods), answers)
	for _, row := range answers[0].Pods {
		if row.Enforcement != "Enforce" || (row.Denied != "") != (row.Name == "cart-7d9f") {
			t.Errorf("%+v", row)
		}
	}
	_, e := explained(t, w, serve.Everything{}, "shop/batch", "www.example.org:443")
	want := []explain.ClusterPolicy{{Policy: "no-pastes", Tier: "Admin", Enforcement: "Enforce"}, {Policy: "clusternetworkpolicy:standard-rest", Tier: "Baseline", Enforcement: "Enforce"}}
	diff.Error(t, want, e.ClusterPolicies)
	var out bytes.Buffer
	p := &print.Printer{Out: &out, Format: print.FormatTable, Now: consoletest.Clock}
	_ = p.Explained(&e)
	if !strings.Contains(out.String(), "Admin policy no-pastes (Enforce)") || strings.Contains(out.String(), "no policy\n") {
		t.Error(out.String())
	}
}

// TestClusterSuggestions: the lines of which a cluster policy is to be made are for callers who
// may read cluster policies, and see all namespaces.
func TestClusterSuggestions(t *testing.T) {
	w := consoletest.New("node-1")
	w.Recent = []byte(consoletest.Line(0, "shop/cart-7d9f", "allowed"))
	for _, c := range []struct {
		viewer serve.Viewer
		query  string
		want   string // of the refusal, "" for the line
	}{
		{consoletest.Some{"", "shop"}, "", ""},
		{consoletest.Some{""}, "cluster=1", "the right to get clusterfqdnnetworkpolicies.namegate.io"},
		{consoletest.Some{"", "standard"}, "cluster=1", "the right to get clusterfqdnnetworkpolicies.namegate.io"},
		{consoletest.Some{"shop", "cluster"}, "cluster=1", "you may not see all namespaces"},
		{consoletest.Some{"", "shop", "cluster"}, "cluster=1", ""},
		{serve.Everything{}, "cluster=1", ""},
		{consoletest.Some{"", "shop", "cluster"}, "nodes=1", "the right to get nodenetworkpolicies.namegate.io"},
		{consoletest.Some{"", "shop", "nodes"}, "nodes=1", ""},
	} {
		q, err := url.ParseQuery(c.query)
		fatal.If(t, err)
		resp, err := w.Agent("", c.viewer).Ask(context.Background(), console.AuditPath, q)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%v %s: %v", c.viewer, c.query, err)
		case c.want == "":
			if text, _ := io.ReadAll(resp.Body); string(text) != string(w.Recent) {
				t.Errorf("%v %s: %s", c.viewer, c.query, text)
			}
		case err == nil || console.ExitCode(err) != console.ExitForbidden || !strings.Contains(err.Error(), c.want):
			t.Errorf("%v %s: %v", c.viewer, c.query, err)
		}
	}
}

// TestDeniedLatelyByRule: what was denied lately by a rule of a cluster policy has the rule, for
// callers who may read it.
func TestDeniedLatelyByRule(t *testing.T) {
	w := consoletest.ClusterWorld("198.51.100.0/24")
	for want, v := range map[string]serve.Viewer{
		`Admin policy no-pastes (spec.egress[0], "pastes")`: consoletest.Some{"shop", "cluster"}, "a cluster policy (Admin)": consoletest.Some{"shop", "standard"},
	} {
		_, e := explained(t, w, v, "shop/cart-7d9f", "203.0.113.5:443")
		if len(e.Flows) != 1 || e.Flows[0].By != want || e.Flows[0].Reason != "rule" {
			t.Errorf("%+v, want %s", e.Flows, want)
		}
		var out bytes.Buffer
		_ = (&print.Printer{Out: &out, Format: print.FormatTable, Now: consoletest.Clock}).Explained(&e)
		diff.Has(t, "3 × tcp 203.0.113.5:443, 0s ago: "+want+"\n", out.String())
	}
}

// TestNetworkPolicyForAnotherEngine: the NetworkPolicy for another engine has the ports of a cluster policy
// for callers alone who may get that policy; others are told whom to ask.
func TestNetworkPolicyForAnotherEngine(t *testing.T) {
	w := consoletest.ClusterWorld("192.0.2.0/24")
	limits := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "limits"}, Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}}}
	w.NetworkPolicies = []*networkingv1.NetworkPolicy{limits}
	for _, c := range []struct {
		what    string
		viewer  serve.Viewer
		engine  bool
		content bool
	}{
		{"an administrator", serve.Everything{}, true, true},
		{"an administrator, without another engine", serve.Everything{}, false, false},
		{"a tenant", consoletest.Some{"shop"}, true, false},
	} {
		if w.Engine = nil; c.engine {
			w.Engine = &explain.Engine{Drops: true, Endpoint: netpolicyfor.Endpoint(), ClusterPolicies: w.Input.ClusterPolicies}
		}
		resp, err := w.Agent("", c.viewer).Ask(context.Background(), console.ExplainPath, url.Values{"pod": {"shop/cart-7d9f"}, "to": {"registry.test:443"}})
		fatal.If(t, err)
		text, err := io.ReadAll(resp.Body)
		fatal.If(t, err)
		diff.Equal(t, c.content, strings.Contains(string(text), "cluster-for-engine-"), c.what, "the NetworkPolicy is there", text)
		diff.Equal(t, c.engine && !c.content, strings.Contains(string(text), netpolicyfor.Refused), c.what, "refused", text)
	}
}
