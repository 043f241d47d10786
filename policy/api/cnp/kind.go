package cnp

import (
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	api "sigs.k8s.io/network-policy-api/apis/v1beta1"
)

// Kind is the word of the kind.
const Kind = "ClusterNetworkPolicy"

// Versions are the versions of the kind that the package reads, whose schemas are equal: the one that
// API servers store first, then the one that those with a CRD of an earlier release serve alone. The
// other files name no version.
func Versions() []schema.GroupVersion {
	return []schema.GroupVersion{{Group: api.GroupName, Version: "v1beta1"}, {Group: api.GroupName, Version: "v1alpha2"}}
}

// Resource is the kind in the first of its versions, which stands for both.
func Resource() schema.GroupVersionResource {
	return Versions()[0].WithResource("clusternetworkpolicies")
}

// AsServed returns ask's answer for a resource. Where that stands for both versions of the kind, and the
// first is not found, it is the answer for the other.
func AsServed[T any](of schema.GroupVersionResource, ask func(schema.GroupVersionResource) (T, error)) (T, error) {
	answer, err := ask(of)
	if of == Resource() && apierrors.IsNotFound(err) {
		of.Version = Versions()[1].Version
		return ask(of)
	}
	return answer, err
}

type (
	ingressRule   = api.ClusterNetworkPolicyIngressRule
	egressRule    = api.ClusterNetworkPolicyEgressRule
	egressPeer    = api.ClusterNetworkPolicyEgressPeer
	protocol      = api.ClusterNetworkPolicyProtocol
	port          = api.Port
	subject       = api.ClusterNetworkPolicySubject
	namespacedPod = api.NamespacedPod
	cidr          = api.CIDR
	domainName    = api.DomainName
)

const (
	accept = string(api.ClusterNetworkPolicyRuleActionAccept)
	deny   = string(api.ClusterNetworkPolicyRuleActionDeny)
	pass   = string(api.ClusterNetworkPolicyRuleActionPass)
	admin  = string(api.AdminTier)
	base   = string(api.BaselineTier)
)

// PeersOf tells whether peers of rules are pods, and nodes. Those of rules for ingress are pods: also where one
// cannot be read, NetworkPolicies count beside it.
func PeersOf(p *unstructured.Unstructured) (pods, nodes bool) {
	spec, _ := p.Object["spec"].(map[string]any)
	ingress, _ := spec["ingress"].([]any)
	egress, _ := spec["egress"].([]any)
	pods = len(ingress) > 0
	for _, raw := range egress {
		rule, _ := raw.(map[string]any)
		to, _ := rule["to"].([]any)
		for _, raw := range to {
			peer, _ := raw.(map[string]any)
			pods = pods || peer["namespaces"] != nil || peer["pods"] != nil
			nodes = nodes || peer["nodes"] != nil
		}
	}
	return pods, nodes
}

// Same tells whether two objects of one name say the same.
func Same(a, b *unstructured.Unstructured) bool {
	return a == b || reflect.DeepEqual(a.Object["spec"], b.Object["spec"])
}
