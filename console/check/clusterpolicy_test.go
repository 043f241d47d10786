package check

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/policy"
)

// TestClusterPolicies: what is wrong with them is found in its line, and that they are not
// enforced yet.
func TestClusterPolicies(t *testing.T) {
	const head = "apiVersion: namegate.io/v1alpha1\nkind: ClusterFQDNNetworkPolicy\nmetadata: {name: p}\nspec:\n  tier: Admin\n  priority: 1\n  subject: {namespaces: {}}\n"
	const yet = ": warning: clusterpolicy p: policies of this kind are not enforced yet; answers of check say what they will do"
	for text, want := range map[string][]string{
		head: {"stdin:1" + yet},
		head + "  egress:\n  - action: Deny\n    networks: [192.0.2.0]\n": {
			"stdin:1" + yet,
			`stdin:10: error: clusterpolicy p: spec.egress[0].networks[0]: "192.0.2.0" is no network; write an address and its length: 192.0.2.0/24, 2001:db8::/32; until then the rule denies every connection`,
		},
		head + "---\n" + head:                               {"stdin:1" + yet, "stdin:11: error: clusterpolicy p: metadata.name: a policy of that name is in stdin:3; remove or rename one of them"},
		head + "  egress:\n  - {action: Deny, match: []}\n": {`stdin:9: error: clusterpolicy p: spec.egress[0].match: there is no field "match" here; write one of action, matches, name, networks, ports`},
	} {
		if policy.TiersEnforced && len(want) > 0 && want[0] == "stdin:1"+yet {
			want = want[1:]
		}
		if d := cmp.Diff(want, lint(t, text)); d != "" {
			t.Errorf("%s\n%s", text, d)
		}
	}
	m := manifests(t, head)
	if got := m.Report(m.Lint(Options{}), nil).Summary(); got != "1 file, 0 policies, 1 cluster policy, 0 pods: 0 errors, 1 warning" && !policy.TiersEnforced {
		t.Error(got)
	}
}
