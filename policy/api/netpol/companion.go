package netpol

import (
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/crds/v1alpha1"
)

// CompanionPrefix begins the name of every companion, a NetworkPolicy that Namegate
// wrote itself.
const CompanionPrefix = "namegate-dns-"

// The label that companions have. Source of the key:
// https://kubernetes.io/docs/reference/labels-annotations-taints/.
const (
	companionLabel      = "app.kubernetes.io/managed-by"
	companionLabelValue = "namegate"
)

// IsCompanion tells whether Namegate wrote a NetworkPolicy, or its name, label or owner
// say so. Its rules are for the cluster's own engine, and never count as a user's.
func IsCompanion(n *networkingv1.NetworkPolicy) bool {
	return companionMark(n) != "" || companionOwned(n)
}

// companionMark returns the field by which n looks like a companion, "" for none.
func companionMark(n *networkingv1.NetworkPolicy) string {
	switch {
	case strings.HasPrefix(n.Name, CompanionPrefix):
		return "metadata.name"
	case n.Labels[companionLabel] == companionLabelValue:
		return "metadata.labels"
	}
	return ""
}

// companionOwned tells whether a policy owns n.
func companionOwned(n *networkingv1.NetworkPolicy) bool {
	owner := metav1.GetControllerOfNoCopy(n)
	return owner != nil && (owner.Kind == v1alpha1.Kind || owner.Kind == v1alpha1.ClusterKind) && strings.HasPrefix(owner.APIVersion, v1alpha1.Group+"/")
}
