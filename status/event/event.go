package event

import (
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cnp"
)

// MaxNote is the most bytes of an Event's note that the API server accepts.
const MaxNote = 1024

// Policy returns the reference to a policy.
func Policy(p *v1alpha1.FQDNNetworkPolicy) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion().String(), Kind: v1alpha1.Kind, Namespace: p.Namespace, Name: p.Name, UID: p.UID,
	}
}

// ClusterPolicy returns the reference to a cluster policy.
func ClusterPolicy(p *v1alpha1.ClusterFQDNNetworkPolicy) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion().String(), Kind: v1alpha1.ClusterKind, Name: p.Name, UID: p.UID}
}

// ClusterNetworkPolicy returns the reference to a policy of the standard's kind.
func ClusterNetworkPolicy(p *unstructured.Unstructured) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: cnp.Resource().GroupVersion().String(), Kind: cnp.Kind, Name: p.GetName(), UID: p.GetUID()}
}

// Pod returns the reference to a pod.
func Pod(p policy.PodRef) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: types.UID(p.UID)}
}

// Subject returns the reference to a pod or, for a policy.NodeRef, to a node, whose name the kubelet
// writes as UID in the events of its node.
func Subject(p policy.PodRef) *corev1.ObjectReference {
	if p.Namespace != "" {
		return Pod(p)
	}
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: p.Name, UID: types.UID(p.Name)}
}

// Clip shortens a text to at most n bytes and leaves whole characters.
func Clip(text string, n int) string {
	const end = "…"
	if len(text) <= n {
		return text
	}
	cut := n - len(end)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + end
}
