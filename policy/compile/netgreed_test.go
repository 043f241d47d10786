package compile

import (
	"fmt"
	"runtime"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// egressTo is a NetworkPolicy of a namespace for all its pods.
func egressTo(namespace, name string, rules ...networkingv1.NetworkPolicyEgressRule) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}, Egress: rules},
	}
}

// TestCostOfExceptions: every agent reads every NetworkPolicy of the cluster,
// and an exception makes up to 127 networks. Those are made for pods with a view alone.
func TestCostOfExceptions(t *testing.T) {
	block := &networkingv1.IPBlock{CIDR: "::/0"}
	for i := range 20000 {
		block.Except = append(block.Except, fmt.Sprintf("%x:%x:0:1::1/128", 0x2000+i, i*7%65536))
	}
	n := egressTo("greedy", "n", networkingv1.NetworkPolicyEgressRule{To: []networkingv1.NetworkPolicyPeer{{IPBlock: block}}})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s := New().Compile(Input{NetworkPolicies: []*networkingv1.NetworkPolicy{n}})
	runtime.ReadMemStats(&after)
	if got := (after.TotalAlloc - before.TotalAlloc) / 20000; got > 1024 {
		t.Errorf("%d bytes are allocated for each exception", got)
	}
	if len(s.Problems) != 1 {
		t.Errorf("problems %v", s.Problems)
	}
}
