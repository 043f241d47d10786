package companion

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/namegate/namegate/status/backoff"
)

const (
	// writeTimeout bounds one call's writes of companions, except those to be narrowed:
	// new changes of policies do not wait for the rest.
	writeTimeout = time.Second
	// resumeAfter is when the rest is written.
	resumeAfter = 100 * time.Millisecond
	// narrowAgain is the most between two attempts to narrow a companion whose policy does not
	// enforce any more, or is bypassed.
	narrowAgain = 5 * time.Second
)

// writer makes the companions of the cluster as they are wanted.
type writer struct {
	Options
	attempts map[types.NamespacedName]*attempt
	failing  bool
	until    time.Time // when this call ends
}

// attempt is the last attempt to write one object.
type attempt struct {
	backoff.Backoff
	narrowed time.Time // the last attempt to narrow
}

// write writes the companions that differ and returns how long to wait before some object is
// tried again, 0 if none is. A companion that opens too much is narrowed first; new
// companions are there before old ones go.
func (w *writer) write(ctx context.Context, now time.Time, all, objects []*networkingv1.NetworkPolicy) time.Duration {
	have := make(map[types.NamespacedName]*networkingv1.NetworkPolicy, len(objects))
	for _, n := range objects {
		have[nameOf(n)] = n
	}
	due := map[types.NamespacedName]bool{}
	w.until = w.Now().Add(writeTimeout)
	var again time.Duration
	try := func(name types.NamespacedName, narrows bool, write func() error) {
		due[name] = true
		if d := w.try(ctx, now, name, narrows, write); d > 0 && (again == 0 || d < again) {
			again = d
		}
	}
	slices.SortStableFunc(all, func(a, b *networkingv1.NetworkPolicy) int {
		return cmp.Compare(order(have[nameOf(a)], a), order(have[nameOf(b)], b))
	})
	for _, want := range all {
		name := nameOf(want)
		n := have[name]
		delete(have, name)
		switch {
		case n == nil:
			try(name, false, func() error { return w.create(ctx, want) })
		case !isCompanion(n):
			try(name, false, func() error {
				return fmt.Errorf("the NetworkPolicy %s is a user's and stays as it is; rename it", name)
			})
		case drifted(n, want): // so is every companion that is to be narrowed
			try(name, narrower(n, want), func() error { return w.update(ctx, n, want) })
		}
	}
	for name, n := range have {
		if isCompanion(n) && n.DeletionTimestamp == nil {
			try(name, opensPorts(n), func() error { return remove(ctx, w.Client, n) })
		}
	}
	for name, a := range w.attempts {
		if a.Settled(now) {
			a.narrowed = time.Time{}
			if !due[name] {
				delete(w.attempts, name)
			}
		}
	}
	return again
}

// narrower tells whether an object of ours opens ports that it must not open any more.
func narrower(n, want *networkingv1.NetworkPolicy) bool { return opensPorts(n) && !opensPorts(want) }

// order is the order of writing: objects to be narrowed come first.
func order(n, want *networkingv1.NetworkPolicy) int {
	if n != nil && narrower(n, want) {
		return 0
	}
	return 1
}

// try writes unless the object was written just now. An attempt to narrow waits for nothing but
// the last attempt to narrow: a tenant could open ports, and cease to enforce, at will.
func (w *writer) try(ctx context.Context, now time.Time, name types.NamespacedName, narrows bool, write func() error) time.Duration {
	a := w.attempts[name]
	if a == nil {
		a = &attempt{}
		w.attempts[name] = a
	}
	left := a.Left(now)
	if narrows {
		left = min(left, max(0, a.narrowed.Add(narrowAgain).Sub(now)))
	}
	if left > 0 {
		return left
	}
	switch {
	case w.Stopped() || ctx.Err() != nil:
		return 0
	case !narrows && w.Now().After(w.until):
		return resumeAfter
	}
	a.Attempted(now)
	again := a.Left(now)
	if narrows {
		a.narrowed = now
		again = min(again, narrowAgain)
	}
	err := write()
	if err == nil {
		w.failing = false
		return again // to see that it came about
	}
	if !w.failing && ctx.Err() == nil && !apierrors.IsConflict(err) {
		w.failing = true
		w.Log.Warn("a companion is not as it should be; trying again", "error", err)
	}
	return again
}

func (w *writer) create(ctx context.Context, want *networkingv1.NetworkPolicy) error {
	if _, err := w.Client.NetworkingV1().NetworkPolicies(want.Namespace).Create(ctx, want, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the companion %s/%s: %w", want.Namespace, want.Name, err)
	}
	return nil
}

// update changes our fields and nothing else.
func (w *writer) update(ctx context.Context, n, want *networkingv1.NetworkPolicy) error {
	next := n.DeepCopy()
	next.Spec, next.OwnerReferences = want.Spec, want.OwnerReferences
	for key, value := range want.Labels {
		metav1.SetMetaDataLabel(&next.ObjectMeta, key, value)
	}
	for key, value := range want.Annotations {
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, key, value)
	}
	if _, err := w.Client.NetworkingV1().NetworkPolicies(want.Namespace).Update(ctx, next, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("changing the companion %s/%s: %w", want.Namespace, want.Name, err)
	}
	return nil
}

// drifted tells whether an object is not as wanted. Additions of others are left alone.
func drifted(n, want *networkingv1.NetworkPolicy) bool {
	for key, value := range want.Labels {
		if n.Labels[key] != value {
			return true
		}
	}
	return n.Annotations[PolicyAnnotation] != want.Annotations[PolicyAnnotation] ||
		!equality.Semantic.DeepEqual(n.Spec, want.Spec) || !equality.Semantic.DeepEqual(n.OwnerReferences, want.OwnerReferences)
}

// remove deletes an object, unless it is another by now.
func remove(ctx context.Context, client kubernetes.Interface, n *networkingv1.NetworkPolicy) error {
	err := client.NetworkingV1().NetworkPolicies(n.Namespace).Delete(ctx, n.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &n.UID}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("removing the companion %s/%s: %w", n.Namespace, n.Name, err)
	}
	return nil
}

// RemoveAll deletes all companions of the cluster and returns how many there were.
func RemoveAll(ctx context.Context, client kubernetes.Interface) (found int, err error) {
	selector := labels.SelectorFromSet(labels.Set{ManagedByLabel: ManagedBy}).String()
	list, err := client.NetworkingV1().NetworkPolicies(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return 0, fmt.Errorf("listing companions: %w", err)
	}
	var failed error
	for i := range list.Items {
		n := &list.Items[i]
		if !isCompanion(n) || n.DeletionTimestamp != nil {
			continue
		}
		found++
		failed = errors.Join(failed, remove(ctx, client, n))
	}
	return found, failed
}

func nameOf(n metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: n.GetNamespace(), Name: n.GetName()}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
