package kube

import (
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cfqdnnp"
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

// aClusterPolicy denies one name to every pod.
func aClusterPolicy(name, match string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "namegate.io/v1alpha1", "kind": v1alpha1.ClusterKind,
		"metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"tier": "Admin", "priority": int64(5), "subject": map[string]any{"namespaces": map[string]any{}},
			"egress": []any{map[string]any{"action": "Deny", "matches": []any{map[string]any{"name": match}}}, map[string]any{"action": "Pass"}},
			"ttl":    map[string]any{"inUse": "Renew"},
		},
	}}
}

// TestReadClusterPolicy: what this version does not know breaks a rule or the subject, never
// the object.
func TestReadClusterPolicy(t *testing.T) {
	rule := func(u *unstructured.Unstructured, i int) map[string]any {
		return u.Object["spec"].(map[string]any)["egress"].([]any)[i].(map[string]any)
	}
	for _, c := range []struct {
		name     string
		change   func(*unstructured.Unstructured)
		problems string // of the source, then of the reader
		rules    string // actions, "b" for a broken one
		selects  bool
	}{
		{"whole", func(*unstructured.Unstructured) {}, "", "Deny Pass", true},
		{"a newer status", func(u *unstructured.Unstructured) { set(t, u, "x", "status", "later") }, "", "Deny Pass", true},
		{"a newer field of a rule", func(u *unstructured.Unstructured) { rule(u, 0)["methods"] = []any{"GET"} },
			`PartiallyInvalid spec.egress[0] the rule cannot be read by this version: strict decoding error: unknown field "methods"; until then the rule denies every connection`, "Denyb Pass", true},
		{"a newer field of a match", func(u *unstructured.Unstructured) {
			rule(u, 0)["matches"] = []any{map[string]any{"name": "a.test", "via": "b.test"}}
		},
			`PartiallyInvalid spec.egress[0] the rule cannot be read by this version: strict decoding error: unknown field "matches[0].via"; until then the rule denies every connection`, "Denyb Pass", true},
		{"an action that is none", func(u *unstructured.Unstructured) { rule(u, 1)["action"] = "Log" },
			`PartiallyInvalid spec.egress[1].action "Log" is no action; write Accept, Deny or Pass; until then the rule denies every connection`, "Deny Denyb", true},
		{"egress that is no list", func(u *unstructured.Unstructured) { set(t, u, "x", "spec", "egress") }, "PartiallyInvalid spec.egress[0].action", "Denyb", true},
		{"no egress", func(u *unstructured.Unstructured) { unstructured.RemoveNestedField(u.Object, "spec", "egress") }, "", "", true},
		{"a newer subject", func(u *unstructured.Unstructured) { set(t, u, map[string]any{}, "spec", "subject", "accounts") },
			"Invalid spec.subject the subject cannot be read by this version: strict decoding error: unknown field \"accounts\"; the policy selects nothing until this is fixed, which leaves open what these rules close: spec.egress[0] (Deny), spec.egress[1] (Pass)", "Deny Pass", false},
		{"a newer setting", func(u *unstructured.Unstructured) { set(t, u, "5m", "spec", "schedule") },
			`PartiallyInvalid spec a part of the policy cannot be read by this version, and counts for nothing: strict decoding error: unknown field "schedule"`, "Deny Pass", true},
		{"a setting of another type", func(u *unstructured.Unstructured) { set(t, u, "x", "spec", "ttl") }, "PartiallyInvalid spec a part of the policy cannot be read", "Deny Pass", false},
		{"no spec", func(u *unstructured.Unstructured) { delete(u.Object, "spec") }, `Invalid spec.tier "" is no tier`, "", false},
	} {
		u := aClusterPolicy("p", "a.test")
		c.change(u)
		e := readClusterPolicy(u, nil)
		read := cfqdnnp.Read(e.policy)
		var rules []string
		for _, r := range read.Rules {
			rules = append(rules, r.Action.String()+map[bool]string{true: "b"}[r.Broken])
		}
		if d := cmp.Diff(c.rules, strings.Join(rules, " ")); d != "" || read.Selects(nil, nil) != c.selects || e.policy.Name != "p" {
			t.Errorf("%s: %s selects %v", c.name, d, !c.selects)
		}
		problems := append(e.problems, read.Problems...)
		if len(problems) > 0 != (c.problems != "") || len(problems) > 0 && !strings.HasPrefix(problems[0].Reason+" "+problems[0].Path+" "+problems[0].Message, c.problems) {
			t.Errorf("%s: %+v", c.name, problems)
		}
		if again := readClusterPolicy(u, e); len(read.Rules) > 0 && &again.policy.Spec.Egress[0] != &e.policy.Spec.Egress[0] {
			t.Errorf("%s: the same spec has other memory", c.name)
		}
	}
	if readClusterPolicy(aNode("x", "192.0.2.1"), nil) != nil {
		t.Error("a node was read as a policy")
	}
}

func clusterText(s State) string {
	var out []string
	for _, p := range s.Input.ClusterPolicies {
		out = append(out, p.Name+":"+*p.Spec.Egress[0].Matches[0].Name)
	}
	for _, p := range s.Problems {
		out = append(out, p.Reason)
	}
	return strings.Join(out, " ")
}

// hastyClock lets a minute pass at once where a source waits for a kind that cannot be read.
type hastyClock struct{ clock.RealClock }

// skipped is what hastyClocks did not wait.
var skipped atomic.Int64

func (c hastyClock) Now() time.Time { return c.RealClock.Now().Add(time.Duration(skipped.Load())) }

func (c hastyClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func (c hastyClock) After(d time.Duration) <-chan time.Time {
	if d >= servedAgain {
		skipped.Add(int64(d))
		d = time.Millisecond
	}
	return c.RealClock.After(d)
}

// TestClusterPolicies: they come, change and go.
func TestClusterPolicies(t *testing.T) {
	api := newAPIServer(t)
	api.put("clusterfqdnnetworkpolicies", aClusterPolicy("p", "a.test"))
	r := runAt(t, api)
	first := r.until("p:a.test", clusterText)
	api.put("fqdnnetworkpolicies", aPolicy("other", "b.test"))
	if s := r.until("1", func(s State) string { return fmt.Sprint(len(s.Input.Policies)) }); s.Input.ClusterPolicies[0] != first.Input.ClusterPolicies[0] {
		t.Error("a policy that did not change has another pointer")
	}
	api.put("clusterfqdnnetworkpolicies", aClusterPolicy("p", "c.test"))
	r.until("p:c.test", clusterText)
	api.remove("clusterfqdnnetworkpolicies//p")
	r.until("", clusterText)
}

// TestClusterPoliciesNotServed: without the CRD, or with a role that does not know it, the
// agent works; what is wrong is said, and the kind is found when it comes.
func TestClusterPoliciesNotServed(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(*apiServer, string)
		says string
	}{
		"not served": {func(s *apiServer, resource string) { s.unserved = resource }, ""},
		"forbidden":  {func(s *apiServer, resource string) { s.forbid = resource }, ReasonForbidden},
	} {
		for _, stream := range []bool{true, false} {
			t.Run(fmt.Sprint(name, " ", stream), func(t *testing.T) {
				api := newAPIServer(t)
				api.noStream = !stream
				c.set(api, "clusterfqdnnetworkpolicies")
				api.put("pods", aPod("web", "10.0.0.1"))
				api.put("clusterfqdnnetworkpolicies", aClusterPolicy("p", "a.test"))
				client, dyn := api.clients()
				r := runWith(t, Options{Client: client, Dynamic: dyn, NodeName: ourNode, Log: slog.New(slog.DiscardHandler), Clock: hastyClock{}})
				r.until("web[10.0.0.1]", podText)
				diff.Equal(t, c.says, clusterText(r.last), "the state says")
				if h := r.source.Health(); !h.Disconnected.IsZero() {
					t.Errorf("health %+v", h)
				}
				change := func(resource string) {
					api.mu.Lock()
					defer api.mu.Unlock()
					c.set(api, resource)
				}
				change("")
				r.until("p:a.test", clusterText)
				change("clusterfqdnnetworkpolicies")
				api.forget()
				api.http.CloseClientConnections() // the CRD is deleted, or the role taken away
				if c.says == "" {
					r.until(ReasonNotServed, clusterText)
					change("")
					r.until("p:a.test", clusterText)
					return
				}
				r.untilHealth("a failure", func(h Health) bool { return !h.Disconnected.IsZero() })
				api.put("pods", aPod("zoo", "10.0.0.2"))
				r.until("web[10.0.0.1] zoo[10.0.0.2]", podText)
				diff.Equal(t, "p:a.test", clusterText(r.last), "the state keeps what was read")
			})
		}
	}
}
