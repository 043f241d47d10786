package check

import (
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/testkit/fatal"
)

// TestAnotherEngine: where a sign of another engine is, the finding has the NetworkPolicy to apply,
// and none once it is applied.
func TestAnotherEngine(t *testing.T) {
	const limits = "---\n{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: limits, namespace: shop}, spec: {podSelector: {}, policyTypes: [Egress]}}\n"
	const blocked = "status: {conditions: [{type: DNSBlocked, status: 'True', reason: DNSBlocked, message: m, lastTransitionTime: '2026-01-01T00:00:00Z'}]}\n"
	const own = "apiVersion: namegate.io/v1alpha1\nkind: FQDNNetworkPolicy\nmetadata: {name: out, namespace: shop}\nspec: {podSelector: {}, egress: [{matches: [{name: www.example.org}], ports: [{protocol: TCP, port: 443}]}]}\n"
	const admin = "apiVersion: namegate.io/v1alpha1\nkind: ClusterFQDNNetworkPolicy\nmetadata: {name: admin}\n" +
		"spec: {tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Accept, matches: [{name: www.example.org}], ports: [{protocol: TCP, port: 443}]}]}\n"
	found := func(text string) (all []Finding) {
		for _, f := range manifests(t, text).Lint(inCluster) {
			if f.Reason == AnotherEngine {
				all = append(all, f)
			}
		}
		return all
	}
	for _, policy := range []string{own, admin} {
		if got := found(policy + limits); len(got) > 0 {
			t.Errorf("without a sign of another engine: %v", got)
		}
		if got := found(policy + blocked); len(got) > 0 {
			t.Errorf("without a NetworkPolicy that limits the pods: %v", got)
		}
		got := found(policy + blocked + limits)
		if len(got) != 1 {
			t.Fatalf("%v of\n%s", got, policy)
		}
		_, text, _ := strings.Cut(got[0].Message, "apply beside it: ")
		var n networkingv1.NetworkPolicy
		fatal.If(t, yaml.UnmarshalStrict([]byte(text), &n))
		if len(n.Spec.Egress) != 2 || n.Spec.Egress[1].Ports[0].Port.IntVal != 443 {
			t.Errorf("%s", text)
		}
		if again := found(policy + blocked + limits + "---\n" + text + "\n"); len(again) > 0 {
			t.Errorf("it is applied: %v", again)
		}
		if again := found(strings.Replace(policy, "port: 443", "port: 80", 1) + limits + "---\n" + text + "\n"); len(again) != 1 {
			t.Errorf("the applied one has other ports: %v", again)
		}
	}
}
