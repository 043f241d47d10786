package compile

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/policy/api/netpol"
)

// TestIgnoredNetworkPolicies: a NetworkPolicy for another engine alone neither opens anything nor
// limits a pod. Its label may come and go while its spec does not change.
func TestIgnoredNetworkPolicies(t *testing.T) {
	c, n := New(), aNet(t, "np", `egress: [{}]`)
	var got []int
	for _, labels := range []map[string]string{nil, {netpol.IgnoreLabel: netpol.IgnoreValue}, {netpol.IgnoreLabel: "false"}, {netpol.IgnoreLabel: netpol.IgnoreValue}} {
		now := n.DeepCopy()
		now.Labels = labels
		v := c.Compile(besideInput(nil, now)).Views[0]
		got = append(got, len(v.PeerRules()), len(v.NetworkPolicies))
	}
	if diff := cmp.Diff([]int{1, 1, 0, 0, 1, 1, 0, 0}, got); diff != "" {
		t.Error(diff)
	}
}
