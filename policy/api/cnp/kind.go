package cnp

import (
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	api "sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// Kind is the word of the kind.
const Kind = "ClusterNetworkPolicy"

// Resource is the version of the kind that the package reads. The other files name no version.
func Resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: api.GroupName, Version: "v1alpha2", Resource: "clusternetworkpolicies"}
}

type (
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

// LeadsTo tells whether rules for egress lead to pods, and to nodes.
func LeadsTo(p *unstructured.Unstructured) (pods, nodes bool) {
	spec, _ := p.Object["spec"].(map[string]any)
	egress, _ := spec["egress"].([]any)
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
