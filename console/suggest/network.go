package suggest

import (
	"maps"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PodPeer is a peer of a NetworkPolicy: the pods of a namespace that have labels.
func PodPeer(namespace string, labels map[string]string) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
		PodSelector:       &metav1.LabelSelector{MatchLabels: maps.Clone(labels)},
	}
}

// AddressPeer is a peer of a NetworkPolicy: one address.
func AddressPeer(a netip.Addr) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: netip.PrefixFrom(a, a.BitLen()).String()}}
}

// NetworkPolicy returns an ordinary NetworkPolicy with one egress rule. No ports are
// every protocol and port.
func NetworkPolicy(namespace, name string, pods metav1.LabelSelector, to networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) networkingv1.NetworkPolicy {
	return networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: pods, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
			Egress: []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{to}, Ports: ports}},
		},
	}
}
