package kube

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/namegate/namegate/policy/api/nnp"
)

// aNodePolicy accepts pods and nodes, and denies a name.
func aNodePolicy(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "namegate.io/v1alpha1", "kind": "NodeNetworkPolicy", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"nodeSelector": map[string]any{}, "priority": int64(1),
			"ingress": []any{map[string]any{"action": "Accept", "pods": map[string]any{"namespaceSelector": map[string]any{}, "podSelector": map[string]any{}}, "nodes": map[string]any{}}},
			"egress":  []any{map[string]any{"action": "Deny", "matches": []any{map[string]any{"name": "a.test"}}}},
		},
	}}
}

// TestReadNodePolicy: a rule with a field that is unknown breaks, and a policy with such a field elsewhere
// selects nothing.
func TestReadNodePolicy(t *testing.T) {
	rule := func(u *unstructured.Unstructured, direction string) map[string]any {
		return u.Object["spec"].(map[string]any)[direction].([]any)[0].(map[string]any)
	}
	for _, c := range []struct {
		name     string
		change   func(*unstructured.Unstructured)
		problems string
		rules    string // of egress, then of ingress; "b" for a broken one
	}{
		{"whole", func(*unstructured.Unstructured) {}, "", "Deny Accept"},
		{"a newer status", func(u *unstructured.Unstructured) { set(t, u, "x", "status", "later") }, "", "Deny Accept"},
		{"a newer field of a rule for ingress", func(u *unstructured.Unstructured) { rule(u, "ingress")["users"] = []any{"root"} },
			`PartiallyInvalid spec.ingress[0] the rule cannot be read by this version: strict decoding error: unknown field "users"; until then the rule matches nothing`, "Deny Acceptb"},
		{"a newer field of a rule for egress", func(u *unstructured.Unstructured) { rule(u, "egress")["users"] = []any{"root"} },
			`PartiallyInvalid spec.egress[0] the rule cannot be read by this version: strict decoding error: unknown field "users"; until then the rule denies every connection`, "Denyb Accept"},
		{"ingress that is no list", func(u *unstructured.Unstructured) { set(t, u, "x", "spec", "ingress") }, `PartiallyInvalid spec.ingress[0].action "" is no action`, "Deny Denyb"},
		{"a newer setting", func(u *unstructured.Unstructured) { set(t, u, "5m", "spec", "schedule") },
			`Invalid spec the policy cannot be read by this version: strict decoding error: unknown field "schedule"`, "Deny Accept"},
		{"a setting of another type", func(u *unstructured.Unstructured) { set(t, u, "x", "spec", "priority") }, "Invalid spec the policy cannot be read by this version", "Deny Accept"},
		{"no spec", func(u *unstructured.Unstructured) { delete(u.Object, "spec") }, "Invalid spec.nodeSelector the selector is missing", ""},
	} {
		u := aNodePolicy("p")
		c.change(u)
		e := readNodePolicy(u, nil)
		read := nnp.Read(e.policy)
		var rules []string
		for _, r := range read.Rules {
			rules = append(rules, r.Action.String()+map[bool]string{true: "b"}[r.Broken])
		}
		if got := strings.Join(rules, " "); got != c.rules || (read.Nodes == nil) != strings.HasPrefix(c.problems, "Invalid") || e.policy.Name != "p" {
			t.Errorf("%s: %s", c.name, got)
		}
		if p := read.Problems; len(p) > 0 != (c.problems != "") || len(p) > 0 && !strings.HasPrefix(p[0].Reason+" "+p[0].Path+" "+p[0].Message, c.problems) {
			t.Errorf("%s: %+v", c.name, p)
		}
		if again := readNodePolicy(u, e); len(read.Rules) > 0 && &again.policy.Spec.Egress[0] != &e.policy.Spec.Egress[0] {
			t.Errorf("%s: the same spec has other memory", c.name)
		}
	}
	if readNodePolicy(aNode("x", "192.0.2.1"), nil) != nil {
		t.Error("a node was read as a policy")
	}
}

// TestNodePolicies: they come, change and go. Where they are enforced, nodes and pods of other nodes are known
// while they are peers.
func TestNodePolicies(t *testing.T) {
	for _, enabled := range []bool{true, false} {
		api := newAPIServer(t)
		api.put("nodes", aNode("other", "192.0.2.2"))
		client, dyn := api.clients()
		r := runWith(t, Options{Client: client, Dynamic: dyn, NodeName: ourNode, Nodes: enabled, Log: slog.New(slog.DiscardHandler)})
		text := func(s State) string {
			return fmt.Sprint(len(s.Input.NodePolicies), len(s.Input.Nodes), s.Input.RemoteNamespaces == nil)
		}
		r.until("0 0 false", text)
		api.put("nodenetworkpolicies", aNodePolicy("p"))
		if enabled {
			r.until("1 1 true", text)
		} else {
			r.until("1 0 false", text)
		}
		api.remove("nodenetworkpolicies//p")
		r.until("0 0 false", text)
	}
}
