package placement

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// patchType replaces the list of taints as a whole; the resourceVersion in it
// makes a change that came in between a conflict.
const patchType = types.MergePatchType

// withoutTaint returns the patch that takes our taint from a node, nil if it has
// none.
func withoutTaint(n *corev1.Node) ([]byte, error) {
	left := slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t corev1.Taint) bool { return t.Key == Taint })
	if len(left) == len(n.Spec.Taints) {
		return nil, nil
	}
	text, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": n.ResourceVersion},
		"spec":     map[string]any{"taints": left},
	})
	if err != nil {
		return nil, fmt.Errorf("write the taints of node %s: %w", n.Name, err)
	}
	return text, nil
}

// watchWith narrows a watch.
func watchWith(follow func(context.Context, metav1.ListOptions) (watch.Interface, error), narrow func(*metav1.ListOptions)) func(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		narrow(&o)
		return follow(ctx, o)
	}
}
