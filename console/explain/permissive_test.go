package explain

import (
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestPermissiveNetworkPolicy: explain says that a NetworkPolicy voids the pod's list, and what it
// says to apply denies again what is not listed.
func TestPermissiveNetworkPolicy(t *testing.T) {
	space := map[string]map[string]string{"shop": {"kubernetes.io/metadata.name": "shop"}}
	explained := func(to, rules string, cluster ...*v1alpha1.ClusterFQDNNetworkPolicy) (Explanation, string) {
		t.Helper()
		var n networkingv1.NetworkPolicy
		fatal.If(t, yaml.UnmarshalStrict([]byte("{metadata: {name: controller, namespace: shop}, spec: {podSelector: {}, policyTypes: [Egress], egress: "+rules+"}}"), &n))
		pod, policies := cart(), manifests(t, base+"---"+watch)
		f := about(t, pod, policies)
		f.Snapshot = compile.New().Compile(compile.Input{Policies: policies, NetworkPolicies: []*networkingv1.NetworkPolicy{&n}, ClusterPolicies: cluster, Namespaces: space, Pods: []policy.Pod{pod}})
		f.View, f.NetworkPolicies = f.Snapshot.ViewOf(pod.PodRef), []*networkingv1.NetworkPolicy{&n}
		e := Explain(Question{To: target(t, to)}, f)
		for _, note := range e.Notes {
			if strings.HasPrefix(note, PermissiveNetworkPolicy) {
				return e, note
			}
		}
		return e, ""
	}
	for _, to := range []string{"203.0.113.7:443", "www.example.org:443", "other.test"} {
		e, note := explained(to, "[{}]")
		head, manifest, _ := strings.Cut(note, " apply: ")
		if !strings.HasPrefix(head, "PermissiveNetworkPolicy: NetworkPolicy shop/controller (spec.egress[0]) opens every address outside on any to pods of shop/base, so that") {
			t.Fatalf("%s: notes %q", to, e.Notes)
		}
		var p v1alpha1.ClusterFQDNNetworkPolicy
		fatal.If(t, yaml.UnmarshalStrict([]byte(manifest), &p))
		after, again := explained(to, "[{}]", &p)
		want := Denied
		if strings.HasPrefix(to, "www") {
			want = OnceAsked
		}
		if e.Verdict != Allowed || after.Verdict != want || again != "" {
			t.Errorf("%s: %s, then %s (%s), note %q", to, e.Verdict, after.Verdict, after.Reason, again)
		}
	}
	for _, rules := range []string{"[]", "[{to: [{podSelector: {}}]}]", "[{ports: [{protocol: UDP, port: 53}]}]"} {
		if _, note := explained("203.0.113.7:443", rules); note != "" {
			t.Errorf("%s: %q", rules, note)
		}
	}
}
