package console

import (
	"bytes"
	"context"
	"io"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

// clusterWorld is a world in which cluster policies of both kinds select the pods of shop. The
// networks are more destinations of the first rule.
func clusterWorld(t *testing.T, networks string) *world {
	t.Helper()
	w := newWorld(t, "node-1")
	text := `
metadata: {name: no-pastes}
spec:
  tier: Admin
  priority: 1
  subject: {namespaces: {}}
  egress:
  - {name: pastes, action: Deny, matches: [{pattern: "**.paste.test"}], networks: [` + networks + `]}
  - {name: registry, action: Accept, matches: [{name: registry.test}]}
`
	var ours v1alpha1.ClusterFQDNNetworkPolicy
	fatal.If(t, yaml.UnmarshalStrict([]byte(text), &ours))
	standard := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "standard-rest"},
		"spec": map[string]any{
			"tier": "Baseline", "priority": int64(7), "subject": map[string]any{"namespaces": map[string]any{}},
			"egress": []any{map[string]any{"action": "Deny", "to": []any{map[string]any{"networks": []any{"0.0.0.0/0", "::/0"}}}}},
		},
	}}
	w.snap = compile.New().Compile(compile.Input{
		Policies: w.policies, ClusterPolicies: []*v1alpha1.ClusterFQDNNetworkPolicy{&ours}, ClusterNetworkPolicies: []*unstructured.Unstructured{standard},
		Pods: []policy.Pod{pod("shop", "cart-7d9f", "10.1.0.10", nil, "app=cart"), pod("shop", "batch", "10.1.0.12", func(p *policy.Pod) { p.SecondInterfaces = true })},
	})
	cart := w.snap.Pods()[1].PodRef
	w.open = []policy.GrantInfo{
		{Pod: cart, Addr: netip.MustParseAddr("203.0.113.5"), Ports: "any", Name: policytest.Name("registry.test"), Until: noon.Add(time.Minute), By: "no-pastes registry.test,shop/base registry.test"},
		{Pod: cart, Addr: netip.MustParseAddr("203.0.113.6"), Ports: "any", Name: policytest.Name("gone.test"), Until: noon.Add(time.Minute), By: "no-gone gone.test"},
	}
	w.status.Problems = w.snap.Problems
	w.flows[cart] = []audit.Flow{{
		Time: noon, Last: noon, Pod: cart, Protocol: policy.TCP, Dialled: netip.MustParseAddrPort("203.0.113.5:443"), Reason: audit.ReasonRule,
		Rule: w.snap.ViewOf(cart).Rules.Admin[0], Count: 3,
	}}
	match := func(id string) string {
		return `{"policy":"` + id + `","path":"spec.egress[0].matches[0]","match":"**.no-match.test"}`
	}
	w.recent = []byte(strings.Replace(line(0, "shop/cart-7d9f", "allowed"), `,"rcode"`, `,"matches":[`+match("no-pastes")+`,`+match("shop/base")+`],"rcode"`, 1) +
		strings.Replace(strings.Replace(line(1, "shop/cart-7d9f", "denied"), `"policies":["shop/base"]`, `"policies":["no-pastes","clusternetworkpolicy:standard-rest","shop/base"]`, 1),
			`{"name":"own.test",`, `{"name":"own.test","match":`+match("no-pastes")+`,`, 1) +
		strings.Replace(line(2, "shop/cart-7d9f", "denied"), `"reason"`, `"tier":"Admin","policy":"no-pastes","rule":"pastes of no-pastes","reason"`, 1) +
		line(3, "shop/cart-7d9f", "denied"))
	return w
}

// TestClusterPoliciesAreHidden: callers learn of each kind of cluster policies what decided and
// the tier; the names of policies, rules and matches only with the right to read the kind. The
// right to see all namespaces is not that right.
func TestClusterPoliciesAreHidden(t *testing.T) {
	w := clusterWorld(t, "198.51.100.0/33")
	read := func(v Viewer, path string, query url.Values) string {
		t.Helper()
		resp, err := agentOf("", w, v).Ask(context.Background(), path, query)
		fatal.If(t, err)
		text, err := io.ReadAll(resp.Body)
		fatal.If(t, err)
		return string(text)
	}
	everything := func(v Viewer) (text string) {
		for _, to := range []string{"x.paste.test:443", "registry.test:443", "198.51.100.1:443", "203.0.113.5:443", "203.0.113.6:443"} {
			for _, pod := range []string{"shop/cart-7d9f", "shop/batch"} {
				text += read(v, ExplainPath, url.Values{"pod": {pod}, "to": {to}})
			}
		}
		return text + read(v, GrantsPath, url.Values{}) + read(v, AuditPath, url.Values{}) + read(v, StatusPath, url.Values{}) + read(v, PodsPath, url.Values{})
	}
	ours, theirs := []string{"no-pastes", "pastes of", "no-gone", "198.51.100.0/33"}, []string{"standard-rest"}
	for what, c := range map[string]struct {
		viewer        Viewer
		hidden, shown []string
	}{
		"nothing of the cluster": {some{"", "shop"}, append(ours, theirs...), []string{"a cluster policy (Admin)", `{"tier":"Baseline","enforcement":"Enforce"}`}},
		"ours":                   {some{"", "shop", "cluster"}, theirs, append(ours, `{"tier":"Baseline","enforcement":"Enforce"}`)},
		"the standard's":         {some{"", "shop", "standard"}, ours, append(theirs, "a cluster policy (Admin)")},
		"all":                    {Everything{}, []string{"a cluster policy"}, append(ours, theirs...)},
	} {
		text := everything(c.viewer)
		for _, secret := range c.hidden {
			if at := strings.Index(text, secret); at >= 0 {
				t.Errorf("who may read %s is told %q: %s", what, secret, text[max(0, at-300):at+50])
			}
		}
		for _, word := range c.shown {
			if !strings.Contains(text, word) {
				t.Errorf("who may read %s is not told %q", what, word)
			}
		}
	}
	text, e := explained(t, w, some{"shop"}, "shop/batch", "x.paste.test:443")
	if e.Verdict != explain.Denied || e.Reason != "a cluster policy (Admin) denies x.paste.test: a part of it cannot be read" {
		t.Errorf("%s", text)
	}
}

// TestLinesWithoutClusterPolicies: a line without the names of cluster policies is a line, with
// all else as it was, and a line that names none is untouched.
func TestLinesWithoutClusterPolicies(t *testing.T) {
	w := clusterWorld(t, "198.51.100.0/33")
	got := askedFor(t, agentOf("", w, some{"shop", "pay"}), "namespace=shop")
	lines, was := strings.SplitAfter(got, "\n"), strings.SplitAfter(string(w.recent), "\n")
	if len(lines) != 5 || lines[3] != was[3] {
		t.Fatalf("%s", got)
	}
	for i, want := range map[int][]string{
		0: {`"matches":[{"match":"","path":"","policy":"a cluster policy"},{"match":"**.no-match.test","path":"spec.egress[0].matches[0]","policy":"shop/base"}]`, `"question":{"class":"IN","name":"x0.test","type":"A"}`},
		1: {`"policies":["a cluster policy","shop/base"]`, `{"asked":"2026-05-01T11:59:00Z","match":{"match":"","path":"","policy":"a cluster policy"},"name":"own.test"}`, "secret.pay.test"},
		2: {`"policy":"a cluster policy (Admin)"`, `"tier":"Admin"`, `"policies":["shop/base"]`},
	} {
		if !strings.HasPrefix(lines[i], `{"v":1,"kind":"`) {
			t.Errorf("%s", lines[i])
		}
		for _, text := range want {
			if !strings.Contains(lines[i], text) {
				t.Errorf("%s\nhas no %s", lines[i], text)
			}
		}
		if l, err := audit.ParseLine([]byte(lines[i])); err != nil || l.Pod.Name != "cart-7d9f" {
			t.Errorf("%v: %s", err, lines[i])
		}
	}
	if all := askedFor(t, agentOf("", w, some{"shop", "pay", "cluster", "standard"}), "namespace=shop"); all != string(w.recent) {
		t.Errorf("who may read all gets\n%s", all)
	}
}

// TestPodsOfClusterPolicies: a pod that only a cluster policy selects is one that rules are
// enforced for.
func TestPodsOfClusterPolicies(t *testing.T) {
	w := clusterWorld(t, "198.51.100.0/33")
	c := &console{source: w, now: clock}
	for i, p := range w.snap.Pods() {
		row := c.podRow(&w.snap.Pods()[i], w.snap.ViewOf(p.PodRef))
		if row.Enforcement != "Enforce" || (row.Denied != "") != (p.Name == "cart-7d9f") {
			t.Errorf("%+v", row)
		}
	}
	_, e := explained(t, w, Everything{}, "shop/batch", "www.example.org:443")
	want := []explain.ClusterPolicy{{Policy: "no-pastes", Tier: "Admin", Enforcement: "Enforce"}, {Policy: "clusternetworkpolicy:standard-rest", Tier: "Baseline", Enforcement: "Enforce"}}
	if d := cmp.Diff(want, e.ClusterPolicies); d != "" {
		t.Error(d)
	}
	var out bytes.Buffer
	p := &Printer{Out: &out, Format: FormatTable, Now: clock}
	_ = p.Explained(&e)
	if !strings.Contains(out.String(), "Admin policy no-pastes (Enforce)") || strings.Contains(out.String(), "no policy\n") {
		t.Error(out.String())
	}
}

// TestClusterSuggestions: the lines of which a cluster policy is to be made are for callers who
// may read cluster policies, and see all namespaces.
func TestClusterSuggestions(t *testing.T) {
	w := newWorld(t, "node-1")
	w.recent = []byte(line(0, "shop/cart-7d9f", "allowed"))
	for _, c := range []struct {
		viewer Viewer
		query  string
		want   string // of the refusal, "" for the line
	}{
		{some{"", "shop"}, "", ""},
		{some{""}, "cluster=1", "the right to get clusterfqdnnetworkpolicies.namegate.io"},
		{some{"", "standard"}, "cluster=1", "the right to get clusterfqdnnetworkpolicies.namegate.io"},
		{some{"shop", "cluster"}, "cluster=1", "you may not see all namespaces"},
		{some{"", "shop", "cluster"}, "cluster=1", ""},
		{Everything{}, "cluster=1", ""},
	} {
		q, err := url.ParseQuery(c.query)
		fatal.If(t, err)
		resp, err := agentOf("", w, c.viewer).Ask(context.Background(), AuditPath, q)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%v %s: %v", c.viewer, c.query, err)
		case c.want == "":
			if text, _ := io.ReadAll(resp.Body); string(text) != string(w.recent) {
				t.Errorf("%v %s: %s", c.viewer, c.query, text)
			}
		case err == nil || ExitCode(err) != ExitForbidden || !strings.Contains(err.Error(), c.want):
			t.Errorf("%v %s: %v", c.viewer, c.query, err)
		}
	}
}

// TestDeniedLatelyByRule: what was denied lately by a rule of a cluster policy has the rule, for
// callers who may read it.
func TestDeniedLatelyByRule(t *testing.T) {
	w := clusterWorld(t, "198.51.100.0/24")
	for want, v := range map[string]Viewer{
		`Admin policy no-pastes (spec.egress[0], "pastes")`: some{"shop", "cluster"}, "a cluster policy (Admin)": some{"shop", "standard"},
	} {
		_, e := explained(t, w, v, "shop/cart-7d9f", "203.0.113.5:443")
		if len(e.Flows) != 1 || e.Flows[0].By != want || e.Flows[0].Reason != "rule" {
			t.Errorf("%+v, want %s", e.Flows, want)
		}
		var out bytes.Buffer
		_ = (&Printer{Out: &out, Format: FormatTable, Now: clock}).Explained(&e)
		if !strings.Contains(out.String(), "3 × tcp 203.0.113.5:443, 0s ago: "+want+"\n") {
			t.Error(out.String())
		}
	}
}

// TestLinesOfRules: a line of the log for people names the rule of a policy, or its tier.
func TestLinesOfRules(t *testing.T) {
	tierOf := map[string]string{"shop/base": "Namespace", "no-pastes": "Admin", "a cluster policy (Admin)": "Admin"}
	for policy, want := range map[string]string{
		"shop/base": "secret.pay.test (asked by pay/cart-7d9f) - by shop/base pastes\n",
		"no-pastes": "- by a rule of a cluster policy (Admin) no-pastes pastes\n", "a cluster policy (Admin)": "secret.pay.test (asked by pay/cart-7d9f) - by a cluster policy (Admin)\n",
	} {
		text := strings.Replace(line(1, "shop/cart-7d9f", "denied"), `"reason":"another"`, `"tier":"`+tierOf[policy]+`","policy":"`+policy+`","rule":"pastes","reason":"rule"`, 1)
		l, err := audit.ParseLine([]byte(text))
		fatal.If(t, err)
		if got := auditLine(&l, false, false); !strings.HasSuffix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
