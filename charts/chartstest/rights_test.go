package chartstest

import (
	"strings"
	"testing"
)

// TestNetworkPolicyRights: agents and hook may read NetworkPolicies at most; nothing writes them.
func TestNetworkPolicyRights(t *testing.T) {
	for _, values := range []string{"", everything} {
		r := render(t, values)
		all := append(rights(t, r.objects, "namegate"), rights(t, r.hooks, "namegate-uninstall")...)
		for _, right := range all {
			if verbs, found := strings.CutPrefix(right, "networkpolicies.networking.k8s.io "); found && verbs != "[list, watch] cluster" {
				t.Errorf("with the values %q: %s", values, right)
			}
		}
	}
}
