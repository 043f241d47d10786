package convert

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/source/manifest"
	"github.com/namegate/namegate/testkit/fatal"
)

// specs returns the specs of the policies of a text by their names.
func specs(t *testing.T, text string) map[string]v1alpha1.FQDNNetworkPolicySpec {
	t.Helper()
	parts, err := manifest.Inspect("p.yaml", []byte(text))
	fatal.If(t, err)
	out := map[string]v1alpha1.FQDNNetworkPolicySpec{}
	for _, part := range parts {
		fatal.If(t, part.Err)
		for _, o := range part.Objects {
			if o.Policy == nil {
				t.Fatalf("%s %s: %v", o.Kind, o.Name, o.Err)
			}
			for _, rule := range o.Policy.Spec.Egress {
				for _, m := range rule.Matches {
					if m.Pattern != nil {
						*m.Pattern = strings.TrimSuffix(*m.Pattern, ".")
					}
				}
				for i := range rule.Ports { // a port without a protocol is one of each
					if rule.Ports[i].Protocol == nil {
						rule.Ports[i].Protocol = new(v1alpha1.ProtocolALL)
					}
				}
			}
			out[o.Policy.Namespace+"/"+o.Policy.Name] = o.Policy.Spec
		}
	}
	return out
}

// TestGKE: GKE's manifests are converted as with another apiVersion alone, with a note for the pattern that
// has the names of the cluster too.
func TestGKE(t *testing.T) {
	files, err := filepath.Glob("../../crds/testdata/gke/*.yaml")
	fatal.If(t, err)
	var r Result
	var want strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		fatal.If(t, err)
		fatal.If(t, r.Add(file, text))
		want.WriteString("---\n" + strings.Replace(string(text), "networking.gke.io/v1alpha1", "namegate.io/v1alpha1", 1))
	}
	if len(files) < 15 || r.Policies != len(files) || len(r.Notes) != 1 || r.Notes[0].Object != "FQDNNetworkPolicy every-name" || r.Notes[0].Grade != Wider {
		t.Errorf("%d of %d files, notes %v", r.Policies, len(files), r.Notes)
	}
	if diff := cmp.Diff(specs(t, want.String()), specs(t, string(r.YAML)), cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}

// TestPatterns: several asterisks are one, because GKE reads each as a part of one label.
func TestPatterns(t *testing.T) {
	for pattern, want := range map[string]string{
		"*.example.com":         "*.example.com",
		"*.*.example.com":       "*.*.example.com",
		"**.example.com":        "*.example.com changed",
		"***.example.com":       "*.example.com changed",
		"a**b.example.com":      "a*b.example.com changed",
		"www.**.example.com":    "www.*.example.com changed",
		"**.**.example.com":     "*.*.example.com changed",
		"*-*.example.com":       "*-*.example.com",
		"**":                    "* wider wider", // a name of one label there, and Services here
		"*":                     "* wider",
		"**.example.com.":       "*.example.com changed",
		"api.**":                "api.* changed",
		strings.Repeat("a", 64): " failed",
	} {
		var r Result
		fatal.If(t, r.Add("p.yaml", []byte("apiVersion: networking.gke.io/v1alpha1\nkind: FQDNNetworkPolicy\nmetadata: {name: p}\nspec: {podSelector: {}, egress: [{matches: [{name: a.test}, {pattern: '"+pattern+"'}]}]}\n")))
		got := ""
		if matches := specs(t, string(r.YAML))["default/p"].Egress[0].Matches; len(matches) > 1 {
			got = *matches[1].Pattern
		}
		for _, n := range r.Notes {
			got += " " + string(n.Grade)
			if !strings.HasPrefix(n.String(), "p.yaml:1: "+string(n.Grade)+": FQDNNetworkPolicy p: spec.egress[0].matches[1]: ") {
				t.Error(n)
			}
		}
		if got != want {
			t.Errorf("%s is %s, want %s", pattern, got, want)
		}
		if r.Certain() != (!strings.Contains(want, "wider") && !strings.Contains(want, "failed")) {
			t.Errorf("%s: certain %v", pattern, r.Certain())
		}
	}
}

// TestObjects: lists are taken apart, fields of the API server go, and other objects are named.
func TestObjects(t *testing.T) {
	const text = `apiVersion: v1
kind: List
items:
- apiVersion: networking.gke.io/v1alpha1
  kind: FQDNNetworkPolicy
  metadata: {name: a, namespace: shop, uid: u, resourceVersion: "7", generation: 2, creationTimestamp: "2026-01-01T00:00:00Z", labels: {team: x},
    annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}", kept: "yes"}, managedFields: [{manager: kubectl}]}
  spec: {podSelector: {}, egress: [{matches: [{name: a.test}], ports: [{port: 443}]}]}
  status: {conditions: []}
- apiVersion: networking.gke.io/v1alpha1
  kind: FQDNNetworkPolicy
  metadata: {name: b, namespace: shop}
  spec: {podSelector: {}, egress: [{matches: [{name: a.test}], from: []}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: c}
---
apiVersion: networking.gke.io/v2
kind: FQDNNetworkPolicy
metadata: {name: d, namespace: shop}
spec: {podSelector: {}, egress: [{to: [{fqdns: [a.test]}]}]}
---
{
`
	var r Result
	fatal.If(t, r.Add("all.yaml", []byte(text)))
	want := `apiVersion: namegate.io/v1alpha1
kind: FQDNNetworkPolicy
metadata:
  annotations:
    kept: "yes"
  labels:
    team: x
  name: a
  namespace: shop
spec:
  egress:
  - matches:
    - name: a.test
    ports:
    - port: 443
      protocol: ALL
  podSelector: {}
`
	if diff := cmp.Diff(want, string(r.YAML)); diff != "" {
		t.Error(diff)
	}
	for i, begins := range []string{
		"all.yaml:1: dropped: FQDNNetworkPolicy shop/a: status: the agents write their own",
		"all.yaml:1: failed: FQDNNetworkPolicy shop/b: unknown field \"spec.egress[0].from\"",
		"all.yaml:15: failed: ConfigMap c: ConfigMap of v1 is not converted; namegate convert --help lists the kinds",
		"all.yaml:19: failed: FQDNNetworkPolicy shop/d: FQDNNetworkPolicy of networking.gke.io/v2 is not converted",
		"all.yaml:24: failed: document: ",
	} {
		if i >= len(r.Notes) || !strings.HasPrefix(r.Notes[i].String(), begins) {
			t.Errorf("%d: want %q, of %q", i, begins, r.Notes)
		}
	}
	if r.Certain() || r.Policies != 1 {
		t.Errorf("%d policies, certain %v", r.Policies, r.Certain())
	}
}
