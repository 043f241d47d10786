package companion

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
	"k8s.io/client-go/tools/cache"
)

// podPlacement is what is kept of a pod of the cluster: which policies select it, on which
// node. Pods to which NetworkPolicies do not apply have no node: unscheduled and finished
// pods, and pods on their node's network.
type podPlacement struct {
	metav1.ObjectMeta // its key, version and labels alone
	node              string
}

// trimPod leaves of a pod what is kept.
func trimPod(object any) (any, error) {
	p, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil // trimmed already, or a tombstone
	}
	kept := &podPlacement{ObjectMeta: metav1.ObjectMeta{
		Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion, Labels: p.Labels,
	}}
	finished := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	if !p.Spec.HostNetwork && !finished {
		kept.node = p.Spec.NodeName
	}
	return kept, nil
}

// trimmed makes an informer keep what trim leaves of its objects, call Changed for the changes
// that matter, and log an error of its requests that is not the one before.
func (c *Controller) trimmed(i cache.SharedIndexInformer, trim cache.TransformFunc, matters func(before, after any) bool) cache.SharedIndexInformer {
	var last string
	// Both fail only where the informer has begun.
	_ = i.SetTransform(trim)
	_ = i.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		if text := err.Error(); ctx.Err() == nil && text != last && !errors.Is(err, io.EOF) && !apierrors.IsResourceExpired(err) {
			last = text
			c.o.Log.Warn("what companions may open is not known, or may be old; trying again", "error", err)
		}
	})
	c.notify(i, matters)
	return i
}

// podMatters tells whether a change of a pod may decide about a companion's ports. The churn
// of pods on nodes where policies are in force does not.
func (c *Controller) podMatters(before, after any) bool {
	return !samePlacement(before, after) && (c.undecided(before) || c.undecided(after))
}

func (c *Controller) undecided(object any) bool {
	if object == nil {
		return false
	}
	p, ok := object.(*podPlacement)
	enforcing := c.enforcing.Load()
	return !ok || p.node != "" && (enforcing == nil || !(*enforcing)[p.node])
}

// samePlacement tells whether two versions of a pod are the same for companions.
func samePlacement(before, after any) bool {
	b, ok := before.(*podPlacement)
	a, both := after.(*podPlacement)
	return ok && both && a.node == b.node && a.UID == b.UID && maps.Equal(a.Labels, b.Labels)
}

// unenforced returns the pods, by namespace and in order, on nodes of which it is not known
// that policies are in force there. It notes the other nodes for podMatters before it looks
// at the pods, so that none is missed.
func (c *Controller) unenforced() map[string][]*podPlacement {
	enforcing := map[string]bool{}
	for node := range c.state.Nodes {
		if c.standing(node) == InForce {
			enforcing[node] = true
		}
	}
	c.enforcing.Store(&enforcing)
	out := map[string][]*podPlacement{}
	for _, o := range c.pods.GetStore().List() {
		if p, ok := o.(*podPlacement); ok && p.node != "" && !enforcing[p.node] {
			out[p.Namespace] = append(out[p.Namespace], p)
		}
	}
	for _, pods := range out {
		slices.SortFunc(pods, func(a, b *podPlacement) int { return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.Name, b.Name)) })
	}
	return out
}
