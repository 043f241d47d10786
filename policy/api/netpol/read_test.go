package netpol

import (
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
)

// TestOneObjectHasFewProblems: they are said in status of every node.
func TestOneObjectHasFewProblems(t *testing.T) {
	var rules []networkingv1.NetworkPolicyEgressRule
	for range 5000 {
		rules = append(rules, networkingv1.NetworkPolicyEgressRule{To: []networkingv1.NetworkPolicyPeer{{}}})
	}
	n := Read(&networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{Egress: rules}})
	if got := len(n.Problems); got != maxProblems+1 {
		t.Errorf("%d problems", got)
	}
	if last := n.Problems[len(n.Problems)-1]; last.Message != "4936 more parts of the NetworkPolicy cannot work as they are written; fix those that are named first" {
		t.Errorf("%+v", last)
	}
}
