package netpol

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
)

// TestOneObjectHasFewProblems: they are said in status of every node.
func TestOneObjectHasFewProblems(t *testing.T) {
	var rules []networkingv1.NetworkPolicyEgressRule
	for range 5000 {
		rules = append(rules, networkingv1.NetworkPolicyEgressRule{To: []networkingv1.NetworkPolicyPeer{{}}})
	}
	n := Read(&networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{Egress: rules}})
	diff.Equal(t, policy.MaxProblems+1, len(n.Problems), "problems")
	if last := n.Problems[len(n.Problems)-1]; last.Message != "more parts cannot work; fix the others first" {
		t.Errorf("%+v", last)
	}
}

// TestUnknownProtocolsOpenNothing: an empty protocol is no protocol that is not written.
func TestUnknownProtocolsOpenNothing(t *testing.T) {
	for _, protocol := range []corev1.Protocol{"", "tcp", "ICMP"} {
		ports := []networkingv1.NetworkPolicyPort{{Protocol: &protocol}}
		n := Read(&networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{Egress: []networkingv1.NetworkPolicyEgressRule{{Ports: ports}}}})
		if len(n.Problems) != 1 || !strings.Contains(n.Problems[0].Message, "is unknown, and the port opens nothing") {
			t.Errorf("protocol %q: %+v", protocol, n.Problems)
		}
	}
}
