package explain

import (
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestPermissiveNetworkPolicy: explain says that a NetworkPolicy voids the pod's list, and what to apply.
func TestPermissiveNetworkPolicy(t *testing.T) {
	const voids = "PermissiveNetworkPolicy: NetworkPolicy shop/controller (spec.egress[0]) opens every address outside on any to pods of shop/base, so that"
	for rules, want := range map[string]bool{"[{}]": true, "[]": false, "[{to: [{podSelector: {}}]}]": false} {
		var n networkingv1.NetworkPolicy
		fatal.If(t, yaml.UnmarshalStrict([]byte("{metadata: {name: controller, namespace: shop}, spec: {podSelector: {}, policyTypes: [Egress], egress: "+rules+"}}"), &n))
		pod, policies := cart(), manifests(t, base+"---"+watch)
		f := about(t, pod, policies)
		f.Snapshot = compile.New().Compile(compile.Input{Policies: policies, NetworkPolicies: []*networkingv1.NetworkPolicy{&n}, Pods: []policy.Pod{pod}})
		f.View = f.Snapshot.ViewOf(pod.PodRef)
		for _, to := range []string{"203.0.113.7:443", "www.example.org:443", "other.test"} {
			notes := strings.Join(Explain(Question{To: target(t, to)}, f).Notes, ";")
			if strings.Contains(notes, voids) != want || strings.Contains(notes, " apply: {") != want {
				t.Errorf("%s, %s: %q", rules, to, notes)
			}
		}
	}
}
