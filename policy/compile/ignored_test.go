package compile

import (
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/netpol"
	"github.com/namegate/namegate/testkit/diff"
)

// TestSameNetworkPolicies: a change of what is read is seen, and nothing else makes another view.
func TestSameNetworkPolicies(t *testing.T) {
	base := aNet(t, "np", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8}}]}]}`)
	other := base.DeepCopy()
	other.Labels, other.ResourceVersion, other.Generation = map[string]string{"x": "y"}, "7", 3
	other.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{}}
	changed := other.DeepCopy()
	changed.Spec.Egress[0].To[0].IPBlock.CIDR = "10.0.0.0/9"
	c := New()
	view := func(n *networkingv1.NetworkPolicy) *policy.View { return c.Compile(besideInput(nil, n)).Views[0] }
	if was := view(base); view(other) != was || view(changed) == was {
		t.Error("what does not count counts, or a change is not seen")
	}
}

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
	diff.Error(t, []int{1, 1, 0, 0, 1, 1, 0, 0}, got)
}
