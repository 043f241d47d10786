package check

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestClusterPolicies: what is wrong with them is found in its line.
func TestClusterPolicies(t *testing.T) {
	const head = "apiVersion: namegate.io/v1alpha1\nkind: ClusterFQDNNetworkPolicy\nmetadata: {name: p}\nspec:\n  tier: Admin\n  priority: 1\n  subject: {namespaces: {}}\n"
	for text, want := range map[string][]string{
		head: nil,
		head + "  egress:\n  - action: Deny\n    networks: [192.0.2.0]\n": {
			`stdin:10: error: clusterpolicy p: spec.egress[0].networks[0]: "192.0.2.0" is no network; write an address and its length: 192.0.2.0/24, 2001:db8::/32; until then the rule denies every connection`,
		},
		strings.Replace(head, "{}", "{matchExpressions: [{key: a, operator: in}]}", 1) + "  egress: [{action: Deny}]\n": {
			`stdin:7: error: clusterpolicy p: spec.subject.namespaces: "in" is not a valid label selector operator; the policy selects nothing until this is fixed, which leaves open what these rules close: spec.egress[0] (Deny)`,
		},
		head + "---\n" + head:                               {"stdin:11: error: clusterpolicy p: metadata.name: a policy of that name is in stdin:3; remove or rename one of them"},
		head + "  egress:\n  - {action: Deny, match: []}\n": {`stdin:9: error: clusterpolicy p: spec.egress[0].match: there is no field "match" here; write one of action, matches, name, networks, ports, serverName`},
	} {
		if d := cmp.Diff(want, lint(t, text), cmpopts.EquateEmpty()); d != "" {
			t.Errorf("%s\n%s", text, d)
		}
	}
	m := manifests(t, head)
	if got := m.Report(m.Lint(Options{}), nil).Summary(); !strings.HasPrefix(got, "1 file, 0 policies, 1 cluster policy, 0 pods: 0 errors") {
		t.Error(got)
	}
}

// TestStandardPolicies: those of the standard are found the same way, with rules for
// ingress.
func TestStandardPolicies(t *testing.T) {
	const head = "apiVersion: policy.networking.k8s.io/v1beta1\nkind: ClusterNetworkPolicy\nmetadata: {name: p}\nspec:\n  tier: Admin\n  priority: 1\n  subject: {namespaces: {}}\n"
	for text, want := range map[string][]string{
		head: nil,
		head + "  ingress:\n  - {action: Deny, from: [{namespaces: {}}]}\n": nil,
		head + "  ingress:\n  - {action: Deny, from: [{nodes: {}}]}\n": {
			`stdin:9: error: clusternetworkpolicy p: spec.ingress[0]: unknown field "from[0].nodes"; until then the rule denies every connection`,
		},
		head + "  egress:\n  - action: Pass\n    to:\n    - domainNames: [a.test]\n  - {action: Accept, to: [{nodes: {}}], ports: []}\n": {
			"stdin:11: error: clusternetworkpolicy p: spec.egress[0].to[0].domainNames: domainNames works with Accept alone; write networks, or a ClusterFQDNNetworkPolicy; until then the rule denies every connection",
			`stdin:12: error: clusternetworkpolicy p: spec.egress[1]: unknown field "ports"; until then the rule matches nothing`,
		},
		head + "---\n" + head:                           {"stdin:11: error: clusternetworkpolicy p: metadata.name: a policy of that name is in stdin:3; remove or rename one of them"},
		strings.Replace(head, "v1beta1", "v1alpha2", 1): nil,
		head + "---\n" + "apiVersion: policy.networking.k8s.io/v1\nkind: ClusterNetworkPolicy\nmetadata: {name: q}\n": {
			"stdin:9: error: clusternetworkpolicy q: apiVersion policy.networking.k8s.io/v1 is unknown for ClusterNetworkPolicy; write policy.networking.k8s.io/v1beta1",
		},
		head + "  egress:\n  - {action: Deny, to: [{networks: [192.0.2.1/24]}]}\n": {
			`stdin:9: error: clusternetworkpolicy p: spec.egress[0].to[0].networks[0]: "192.0.2.1/24" has bits beyond its length, which the CRD refuses since v0.2.1; write 192.0.2.0/24, as which it counts`,
		},
		head + "  egress:\n  - {action: Deny, to: [{networks: [192.0.2.1]}]}\n": {
			`stdin:9: error: clusternetworkpolicy p: spec.egress[0].to[0].networks[0]: "192.0.2.1" is no network; write an address and its length: 192.0.2.0/24, 2001:db8::/32; until then the rule denies every connection`,
		},
		head + "  egress:\n  - {action: Accept, to: [{domainNames: [xn--abc.test, db]}]}\n": {
			"stdin:9: warning: clusternetworkpolicy p: spec.egress[0].to[0].domainNames[0]: xn--abc is no A-label of any Unicode label; write the Unicode name for once, and this says what to write",
			"stdin:9: warning: clusternetworkpolicy p: spec.egress[0].to[0].domainNames[1]: has one label; pods ask for it with a search suffix, so write the whole name, such as db.NAMESPACE.svc.cluster.local",
		},
		strings.Replace(head, "tier: Admin", "tier: First", 1):                                           {`stdin:5: error: clusternetworkpolicy p: spec.tier: "First" is no tier; write Admin or Baseline; the policy selects nothing until this is fixed`},
		"apiVersion: policy.networking.k8s.io/v1alpha1\nkind: AdminNetworkPolicy\nmetadata: {name: p}\n": {"warning: no FQDNNetworkPolicy of namegate.io/v1alpha1 in 1 file; is this the right path?"},
		head + "  tier: Baseline\n": {`stdin:1: error: yaml: unmarshal errors: line 8: key "tier" already set in map`},
	} {
		if d := cmp.Diff(want, lint(t, text), cmpopts.EquateEmpty()); d != "" {
			t.Errorf("%s\n%s", text, d)
		}
	}
	m := manifests(t, head+"---\n"+strings.Replace(head, "policy.networking.k8s.io/v1beta1", "crd.antrea.io/v1beta1", 1))
	if r := m.Report(m.Lint(Options{}), nil); r.ClusterPolicies != 1 || m.Skipped["crd.antrea.io/v1beta1 ClusterNetworkPolicy"] != 1 {
		t.Errorf("%s, skipped %v", r.Summary(), m.Skipped)
	}
	if in := m.input(inCluster); len(in.ClusterNetworkPolicies) != 1 || len(in.ClusterPolicies) != 0 {
		t.Errorf("the compiler gets %+v", in)
	}
}
