package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The API group, its version and the names of its kinds.
const (
	Group           = "namegate.io"
	Version         = "v1alpha1"
	Kind            = "FQDNNetworkPolicy"
	Resource        = "fqdnnetworkpolicies"
	ClusterKind     = "ClusterFQDNNetworkPolicy"
	ClusterResource = "clusterfqdnnetworkpolicies"
	NodeKind        = "NodeNetworkPolicy"
	NodeResource    = "nodenetworkpolicies"
)

// SchemeGroupVersion is GroupVersion, under the name that generated code expects.
var SchemeGroupVersion = GroupVersion()

// GroupVersion returns the group and version of this package's types.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: Group, Version: Version}
}

// GroupVersionResource returns the resource of Kind for dynamic clients and informers.
func GroupVersionResource() schema.GroupVersionResource {
	return GroupVersion().WithResource(Resource)
}

// ClusterGroupVersionResource returns the resource of ClusterKind.
func ClusterGroupVersionResource() schema.GroupVersionResource {
	return GroupVersion().WithResource(ClusterResource)
}

// NodeGroupVersionResource returns the resource of NodeKind.
func NodeGroupVersionResource() schema.GroupVersionResource {
	return GroupVersion().WithResource(NodeResource)
}

// AddToScheme makes the kinds and their lists known to s. It never fails; the error
// is there for runtime.SchemeBuilder and its like.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(), &FQDNNetworkPolicy{}, &FQDNNetworkPolicyList{},
		&ClusterFQDNNetworkPolicy{}, &ClusterFQDNNetworkPolicyList{},
		&NodeNetworkPolicy{}, &NodeNetworkPolicyList{})
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}
