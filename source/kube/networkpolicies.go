package kube

import (
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/namegate/namegate/policy/api/netpol"
)

// networkPolicyEntry has the used fields of a NetworkPolicy.
type networkPolicyEntry struct {
	policy *networkingv1.NetworkPolicy
	// pods: it lets pods reach other pods, so that these must be known.
	pods bool
}

// readNetworkPolicy keeps the rules of a NetworkPolicy, and its name. An equal
// NetworkPolicy keeps its pointer.
func readNetworkPolicy(object any, before *networkPolicyEntry) *networkPolicyEntry {
	n, ok := object.(*networkingv1.NetworkPolicy)
	if !ok {
		return nil
	}
	kept := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: n.Namespace, Name: n.Name, UID: n.UID, Labels: n.Labels, OwnerReferences: n.OwnerReferences},
		Spec:       n.Spec,
	}
	if before != nil && equality.Semantic.DeepEqual(before.policy, kept) {
		return before
	}
	return &networkPolicyEntry{policy: kept, pods: !netpol.IsCompanion(kept) && leadsToPods(&kept.Spec)}
}

// leadsToPods tells whether a NetworkPolicy's egress cannot be known without knowing
// pods: peers that are pods, and ports by name.
func leadsToPods(spec *networkingv1.NetworkPolicySpec) bool {
	if len(spec.PolicyTypes) > 0 && !slices.Contains(spec.PolicyTypes, networkingv1.PolicyTypeEgress) {
		return false
	}
	isPods := func(p networkingv1.NetworkPolicyPeer) bool { return p.PodSelector != nil || p.NamespaceSelector != nil }
	isNamed := func(p networkingv1.NetworkPolicyPort) bool { return p.Port != nil && p.Port.Type == intstr.String }
	return slices.ContainsFunc(spec.Egress, func(r networkingv1.NetworkPolicyEgressRule) bool {
		return slices.ContainsFunc(r.To, isPods) || slices.ContainsFunc(r.Ports, isNamed)
	})
}

func listNetworkPolicies(entries []*networkPolicyEntry) []*networkingv1.NetworkPolicy {
	all := make([]*networkingv1.NetworkPolicy, len(entries))
	for i, e := range entries {
		all[i] = e.policy
	}
	return all
}
