package status

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// bootedNode is what is kept of a Node: in which boot it is, by the word of its
// kubelet. The kernel of a later one knows no rule of an agent of an earlier one.
type bootedNode struct {
	metav1.ObjectMeta // its name and version alone
	boot              string
}

// trimNode leaves of a Node what is kept.
func trimNode(object any) (any, error) {
	n, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	return &bootedNode{metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion}, n.Status.NodeInfo.BootID}, nil
}

// nodeInformer follows all Nodes and wakes the term when one was booted.
func (t *term) nodeInformer() cache.SharedIndexInformer {
	nodes := t.o.Client.CoreV1().Nodes()
	lw := &cache.ListWatch{
		ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return nodes.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return nodes.Watch(ctx, o) },
	}
	i := t.trimmed(lw, &corev1.Node{}, trimNode)
	// It fails only where the informer has ended.
	_, _ = i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			b, ok := before.(*bootedNode)
			a, both := after.(*bootedNode)
			if !ok || !both || a.boot != b.boot {
				note(t.leadNews)
			}
		},
	})
	return i
}

// bootOf returns the boot of a node, "" where nobody says.
func (t *term) bootOf(node string) string {
	if object, found, err := t.nodes.GetStore().GetByKey(node); found && err == nil {
		if n, ok := object.(*bootedNode); ok {
			return n.boot
		}
	}
	return ""
}
