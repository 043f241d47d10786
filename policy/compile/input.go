package compile

import (
	"net/netip"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
)

// Input is everything a snapshot is compiled from. The compiler keeps parts of it: the
// caller must not change what it has passed, but may replace it.
type Input struct {
	// Policies are of the whole cluster. One that did not change keeps its pointer, or its parts.
	Policies []*v1alpha1.FQDNNetworkPolicy
	// Namespaces holds the labels of each namespace by its name.
	Namespaces map[string]map[string]string
	Pods       []policy.Pod
	// NetworkPolicies are the ordinary ones of networking.k8s.io/v1. One that did not
	// change keeps its pointer.
	NetworkPolicies []*networkingv1.NetworkPolicy
	// EnforceNetworkPolicies: they isolate every pod of this node that they select, in both directions.
	// Else they count in egress of the pods that a policy of another kind selects for that, and in
	// ingress of those that a ClusterNetworkPolicy does.
	EnforceNetworkPolicies bool
	// ClusterPolicies are of the whole cluster. One that did not change keeps its pointer.
	ClusterPolicies []*v1alpha1.ClusterFQDNNetworkPolicy
	// ClusterNetworkPolicies are those of the standard, as they were sent. One that did not
	// change keeps its pointer.
	ClusterNetworkPolicies []*unstructured.Unstructured
	// NodePolicies are of the whole cluster. One that did not change keeps its pointer.
	NodePolicies []*v1alpha1.NodeNetworkPolicy
	// Remote are pods of other nodes, as peers alone; Pods of other nodes are peers too. Nodes
	// are the nodes, made by peers.Node. One that did not change keeps its pointer.
	Remote, Nodes []*policy.Pod
	// Node is this node as a subject; nil: policies do not select nodes.
	Node *policy.Node
	// TurnedToAudit are policies for nodes, by name, that the node only audits, with the reason as
	// a sentence.
	TurnedToAudit map[string]string
	// Unconfirmed are enforced policies for nodes, by name, whose safeguard waits for confirmation.
	Unconfirmed map[string]bool
	// RemoteNamespaces are the namespaces whose pods of other nodes are needed as peers, sorted:
	// Remote may lack pods of others. nil: every namespace; empty: none.
	RemoteNamespaces []string
	// PeersUnknown is true while pods of other nodes are needed as peers and some are not known:
	// Remote lacks them then, and connections to them are closed.
	PeersUnknown bool
}

// draft is a snapshot in the making.
type draft struct {
	policy.Snapshot // its exported fields
	pods            []policy.Pod
	podByAddr       map[netip.Addr]policy.PodRef
}
