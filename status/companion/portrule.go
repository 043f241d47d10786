package companion

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/fqdnnp"
	"github.com/namegate/namegate/policy/compile"
)

// openable tells whether the companions of an accepted policy may open ports: its rules
// have ports, and it denies all others.
func openable(p *v1alpha1.FQDNNetworkPolicy) bool {
	return p.Spec.Enforcement != v1alpha1.EnforcementAudit && fqdnnp.Read(p).EgressPorts() != ""
}

// portRules returns the rules of a NetworkPolicy that open ports to every destination:
// one, or none without ports, since a rule that has none opens all of them.
func portRules(ports compile.PodPorts) []networkingv1.NetworkPolicyEgressRule {
	if ports.Numbers == policy.AnyPort {
		return []networkingv1.NetworkPolicyEgressRule{{}}
	}
	rule := networkingv1.NetworkPolicyEgressRule{}
	for _, r := range ports.Numbers.Ranges() {
		rule.Ports = append(rule.Ports, networkPolicyPort(r))
	}
	for _, n := range ports.Names {
		name := intstr.FromString(n.Name)
		rule.Ports = append(rule.Ports, networkingv1.NetworkPolicyPort{Protocol: protocolOf(n.Protocol), Port: &name})
	}
	if len(rule.Ports) == 0 {
		return nil
	}
	return []networkingv1.NetworkPolicyEgressRule{rule}
}

// protocolOf returns a protocol in the words of NetworkPolicies.
func protocolOf(p policy.Protocol) *corev1.Protocol {
	protocol := corev1.ProtocolTCP
	switch p {
	case policy.UDP:
		protocol = corev1.ProtocolUDP
	case policy.SCTP:
		protocol = corev1.ProtocolSCTP
	}
	return &protocol
}

// networkPolicyPort returns a range of one protocol in the words of NetworkPolicies.
func networkPolicyPort(r policy.PortRange) networkingv1.NetworkPolicyPort {
	out := networkingv1.NetworkPolicyPort{Protocol: protocolOf(r.Protocol)}
	if r.First == 0 { // every port: rules have no port 0
		return out
	}
	first := intstr.FromInt32(int32(r.First))
	out.Port = &first
	if r.Last > r.First {
		last := int32(r.Last)
		out.EndPort = &last
	}
	return out
}

// opensPorts tells whether a companion opens more than the endpoint.
func opensPorts(n *networkingv1.NetworkPolicy) bool { return len(n.Spec.Egress) > 1 }
