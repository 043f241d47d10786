package report

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
)

// openable returns the ports that a policy's companions may open: those of its rules,
// none where nothing denies what the rules do not allow.
func openable(p *v1alpha1.FQDNNetworkPolicy, problems []policy.Problem) policy.PortSet {
	accepted, _, _ := policy.Acceptance(problems)
	if !accepted || p.Spec.Enforcement == v1alpha1.EnforcementAudit {
		return ""
	}
	return policy.EgressPorts(p)
}

// portRules returns the rules of a NetworkPolicy that open ports to every destination:
// one, or none for the empty set, since a rule without ports opens all of them.
func portRules(ports policy.PortSet) []networkingv1.NetworkPolicyEgressRule {
	ranges := ports.Ranges()
	if len(ranges) == 0 {
		return nil
	}
	if ports == policy.AnyPort {
		return []networkingv1.NetworkPolicyEgressRule{{}}
	}
	rule := networkingv1.NetworkPolicyEgressRule{}
	for _, r := range ranges {
		rule.Ports = append(rule.Ports, networkPolicyPort(r))
	}
	return []networkingv1.NetworkPolicyEgressRule{rule}
}

// networkPolicyPort says a range of one protocol as NetworkPolicies do.
func networkPolicyPort(r policy.PortRange) networkingv1.NetworkPolicyPort {
	protocol := corev1.ProtocolTCP
	switch r.Protocol {
	case policy.UDP:
		protocol = corev1.ProtocolUDP
	case policy.SCTP:
		protocol = corev1.ProtocolSCTP
	}
	out := networkingv1.NetworkPolicyPort{Protocol: &protocol}
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

// hasPorts tells whether a companion opens more than the endpoint.
func hasPorts(n *networkingv1.NetworkPolicy) bool { return len(n.Spec.Egress) > 1 }
