package chartstest

import (
	"slices"
	"strings"
	"testing"
)

// TestNetworkPolicyRights: agents read NetworkPolicies in any case, and write them only
// where companions are on.
func TestNetworkPolicyRights(t *testing.T) {
	for values, want := range map[string][]string{
		"":                            {"[list, watch]"},
		"console: {enabled: false}":   {"[list, watch]"},
		"companion: {enabled: false}": {"[list, watch]"},
		"companion: {enabled: true, ports: Never}": {"[create, delete, update]", "[list, watch]"},
		everything: {"[create, delete, update]", "[list, watch]"},
	} {
		var got []string
		for _, right := range rights(t, render(t, values).objects, "namegate") {
			if verbs, found := strings.CutPrefix(right, "networkpolicies.networking.k8s.io "); found {
				got = append(got, strings.TrimSuffix(verbs, " cluster"))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("with the values %q: %q, want %q", values, got, want)
		}
	}
}
