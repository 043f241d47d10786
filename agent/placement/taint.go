package placement

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
)

// Taint is on a node from its registration, by the administrator's choice, until
// its agent is ready.
const Taint = "namegate.io/agent-not-ready"

// ClearTaint takes the taint from the node, if it is there.
func (w *Watcher) ClearTaint(ctx context.Context) error {
	nodes := w.o.Client.CoreV1().Nodes()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		n, err := nodes.Get(ctx, w.o.Node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		patch, err := withoutTaint(n)
		if patch == nil || err != nil {
			return err
		}
		if _, err = nodes.Patch(ctx, w.o.Node, types.MergePatchType, patch, metav1.PatchOptions{}); err == nil {
			w.o.Log.Info("removed the node's startup taint", "taint", Taint)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("take the taint %s from node %s: %w", Taint, w.o.Node, err)
	}
	return nil
}

// withoutTaint returns the merge patch that takes our taint from a node, nil if it has none. It replaces
// the list of taints; the resourceVersion in it makes a change that came in between a conflict.
func withoutTaint(n *corev1.Node) ([]byte, error) {
	left := slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t corev1.Taint) bool { return t.Key == Taint })
	if len(left) == len(n.Spec.Taints) {
		return nil, nil
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": n.ResourceVersion},
		"spec":     map[string]any{"taints": left},
	})
}
