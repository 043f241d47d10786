package status

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// placedPod is what is kept of a pod of the cluster: enough to tell whom a policy
// selects on which node. Pods to which NetworkPolicies do not apply have no node: those
// that are not scheduled, have ended, or are on their node's network.
type placedPod struct {
	metav1.ObjectMeta // its key, version and labels alone
	node              string
}

// trimPod leaves of a pod what is kept.
func trimPod(object any) (any, error) {
	p, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil // trimmed already, or word that it is gone
	}
	kept := &placedPod{ObjectMeta: metav1.ObjectMeta{
		Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion, Labels: p.Labels,
	}}
	ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	if !p.Spec.HostNetwork && !ended {
		kept.node = p.Spec.NodeName
	}
	return kept, nil
}

// podInformer follows all pods of the cluster. It wakes the term for those that may
// have to do with a companion that is held: not for pods of nodes that calm knows.
func (t *term) podInformer() cache.SharedIndexInformer {
	pods := t.o.Client.CoreV1().Pods(metav1.NamespaceAll)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return pods.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return pods.Watch(ctx, o)
		},
	}
	i := t.trimmed(lw, &corev1.Pod{}, trimPod)
	wake := func(objects ...any) {
		calm := t.calm.Load()
		for _, o := range objects {
			if p, ok := o.(*placedPod); !ok || p.node != "" && (calm == nil || !(*calm)[p.node]) {
				note(t.leadNews)
			}
		}
	}
	// It fails only where the informer has ended.
	_, _ = i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { wake(o) },
		UpdateFunc: func(before, after any) {
			if !alikePods(before, after) {
				wake(before, after)
			}
		},
		DeleteFunc: func(o any) { wake(o) },
	})
	return i
}

// trimmed follows objects of which it keeps what trim leaves. It logs a failure that is
// not the one before.
func (t *term) trimmed(lw *cache.ListWatch, example runtime.Object, trim cache.TransformFunc) cache.SharedIndexInformer {
	i := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, t.o.Client), example, 0, cache.Indexers{})
	var last string
	// Both fail only where the informer has begun.
	_ = i.SetTransform(trim)
	_ = i.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		if text := err.Error(); ctx.Err() == nil && text != last && !errors.Is(err, io.EOF) && !apierrors.IsResourceExpired(err) {
			last = text
			t.log.Warn("what companions may open is not known, or may be old; trying again", "error", err)
		}
	})
	return i
}

// alikePods tells whether two versions of a pod are the same for companions.
func alikePods(before, after any) bool {
	b, ok := before.(*placedPod)
	a, both := after.(*placedPod)
	return ok && both && a.node == b.node && a.UID == b.UID && maps.Equal(a.Labels, b.Labels)
}

// doubtful returns the pods, by namespace and in order, on nodes of which it is not
// known that policies are in force there. It notes the other nodes for podInformer
// before it looks at the pods, so that none is missed.
func (t *term) doubtful() map[string][]*placedPod {
	calm := map[string]bool{}
	for _, seen := range t.survey.seen {
		if seen.node != "" && t.survey.standing(seen.node) == inForce {
			calm[seen.node] = true
		}
	}
	t.calm.Store(&calm)
	out := map[string][]*placedPod{}
	for _, p := range listed[*placedPod](t.pods) {
		if p.node != "" && !calm[p.node] {
			out[p.Namespace] = append(out[p.Namespace], p)
		}
	}
	for _, pods := range out {
		slices.SortFunc(pods, func(a, b *placedPod) int { return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.Name, b.Name)) })
	}
	return out
}
