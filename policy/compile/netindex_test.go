package compile

import (
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/namegate/namegate/policy/api/netpol"
)

// TestSameNetPolicySeesEveryField that counts, one after the other, and no other.
func TestSameNetPolicySeesEveryField(t *testing.T) {
	base := aNet(t, "np", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{ports: [{port: 1}], to: [{podSelector: {}}, {ipBlock: {cidr: 10.0.0.0/8, except: [10.0.0.0/24]}}]}]}`)
	for i, change := range []func(*networkingv1.NetworkPolicy){
		func(n *networkingv1.NetworkPolicy) { n.Spec.PodSelector.MatchLabels["app"] = "c" },
		func(n *networkingv1.NetworkPolicy) {
			n.Spec.PodSelector.MatchLabels = map[string]string{"app": "web", "b": "c"}
		},
		func(n *networkingv1.NetworkPolicy) { n.Spec.PolicyTypes = nil },
		func(n *networkingv1.NetworkPolicy) { n.Spec.Egress[0].Ports[0].Port.IntVal = 2 },
		func(n *networkingv1.NetworkPolicy) { n.Spec.Egress[0].Ports[0].EndPort = ptr(int32(9)) },
		func(n *networkingv1.NetworkPolicy) { n.Spec.Egress[0].Ports = nil },
		func(n *networkingv1.NetworkPolicy) { n.Spec.Egress[0].To[0].NamespaceSelector = labelled("a", "b") },
		func(n *networkingv1.NetworkPolicy) { n.Spec.Egress[0].To[0].PodSelector = labelled("a", "b") },
		func(n *networkingv1.NetworkPolicy) { n.Spec.Egress[0].To[0].PodSelector = nil },
		func(n *networkingv1.NetworkPolicy) { n.Spec.Egress[0].To[1].IPBlock.CIDR = "10.0.0.0/9" },
		func(n *networkingv1.NetworkPolicy) { n.Spec.Egress[0].To[1].IPBlock.Except[0] = "10.0.0.0/25" },
		func(n *networkingv1.NetworkPolicy) { n.Spec.Egress[0].To = nil },
		func(n *networkingv1.NetworkPolicy) { n.Spec.Egress = nil },
		func(n *networkingv1.NetworkPolicy) {
			n.Labels = map[string]string{"namegate.io/ignore": "true"}
		},
	} {
		changed := base.DeepCopy()
		change(changed)
		c := New()
		was := c.Compile(besideInput(nil, base)).Views[0]
		if netpol.Same(base, changed) || netpol.Same(changed, base) || c.Compile(besideInput(nil, changed)).Views[0] == was {
			t.Errorf("change %d is not seen", i)
		}
	}
	other := base.DeepCopy()
	other.Labels, other.ResourceVersion, other.Generation = map[string]string{"x": "y"}, "7", 3
	other.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{}}
	if !netpol.Same(base, other) {
		t.Error("what does not count counts")
	}
}
