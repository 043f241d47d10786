package status

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"

	"github.com/namegate/namegate/crds/v1alpha1"
)

// ReasonTooManyCompanions is the reason of the event of a policy that goes without
// some companions.
const ReasonTooManyCompanions = "TooManyCompanions"

// companionsTake is for how long one look at everything writes companions, beside those
// that are to be narrowed: what is new in policies does not wait for the rest.
const companionsTake = time.Second

// companions brings the companions of the cluster up to date. It is for one
// goroutine, and lasts for one term.
type companions struct {
	client   kubernetes.Interface
	recorder events.EventRecorder
	herald   *herald
	log      *slog.Logger
	endpoint []netip.Prefix
	stopped  func() bool
	tries    map[types.NamespacedName]*patience
	crowded  map[types.UID]bool // told already
	failing  bool
	clock    Clock
	until    time.Time // when this look ends
}

// bring writes what differs and returns how long to wait before something is tried
// again, 0 if nothing is. What opens too much is narrowed first; the new is there before
// the old goes. ports says which ports a companion opens now.
func (c *companions) bring(
	ctx context.Context, now time.Time, policies map[string]*v1alpha1.FQDNNetworkPolicy, others []*networkingv1.NetworkPolicy,
	ports portsOf,
) time.Duration {
	wanted, crowded := wantedCompanions(policies, others, c.endpoint, ports)
	c.tellCrowded(crowded)
	have := make(map[types.NamespacedName]*networkingv1.NetworkPolicy, len(others))
	for _, n := range others {
		have[nameOf(n)] = n
	}
	due := map[types.NamespacedName]bool{}
	c.until = c.clock.Now().Add(companionsTake)
	var again time.Duration
	attempt := func(name types.NamespacedName, narrows bool, write func() error) {
		due[name] = true
		if d := c.try(ctx, now, name, narrows, write); d > 0 && (again == 0 || d < again) {
			again = d
		}
	}
	try := func(name types.NamespacedName, write func() error) { attempt(name, false, write) }
	slices.SortStableFunc(wanted, func(a, b *networkingv1.NetworkPolicy) int {
		return cmp.Compare(order(have[nameOf(a)], a), order(have[nameOf(b)], b))
	})
	for _, w := range wanted {
		name := nameOf(w)
		n := have[name]
		delete(have, name)
		switch {
		case n == nil:
			try(name, func() error { return c.create(ctx, w) })
		case !isCompanion(n):
			try(name, func() error {
				return fmt.Errorf("the NetworkPolicy %s is a user's and stays as it is; rename it", name)
			})
		case narrower(n, w):
			attempt(name, true, func() error { return c.update(ctx, n, w) })
		case drifted(n, w):
			try(name, func() error { return c.update(ctx, n, w) })
		}
	}
	for name, n := range have {
		if isCompanion(n) && n.DeletionTimestamp == nil {
			attempt(name, hasPorts(n), func() error { return remove(ctx, c.client, n) })
		}
	}
	for name, p := range c.tries {
		if p.quiet(now); !due[name] && p.wait == 0 {
			delete(c.tries, name)
		}
	}
	return again
}

// narrower tells whether an object of ours opens ports that it must not open any more.
func narrower(n, w *networkingv1.NetworkPolicy) bool { return hasPorts(n) && !hasPorts(w) }

// order is that of writing: what is to be narrowed comes first.
func order(n, w *networkingv1.NetworkPolicy) int {
	if n != nil && narrower(n, w) {
		return 0
	}
	return 1
}

// try writes unless the object was written just now. What narrows waits for nothing but
// the last attempt to narrow: a tenant could open ports, and cease to enforce, at will.
func (c *companions) try(ctx context.Context, now time.Time, name types.NamespacedName, narrows bool, write func() error) time.Duration {
	p := c.tries[name]
	if p == nil {
		p = &patience{}
		c.tries[name] = p
	}
	left := p.left(now)
	if narrows {
		left = min(left, p.leftToNarrow(now))
	}
	if left > 0 {
		return left
	}
	switch {
	case c.stopped() || ctx.Err() != nil:
		return 0
	case !narrows && c.clock.Now().After(c.until):
		return passRest
	}
	p.tried(now)
	again := p.wait
	if narrows {
		p.narrowed = now
		again = min(again, patienceNarrow)
	}
	err := write()
	if err == nil {
		c.failing = false
		return again // to see that it came about
	}
	if !c.failing && ctx.Err() == nil && !apierrors.IsConflict(err) {
		c.failing = true
		c.log.Warn("a companion is not as it should be; trying again", "error", err)
	}
	return again
}

func (c *companions) create(ctx context.Context, w *networkingv1.NetworkPolicy) error {
	if _, err := c.client.NetworkingV1().NetworkPolicies(w.Namespace).Create(ctx, w, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the companion %s/%s: %w", w.Namespace, w.Name, err)
	}
	return nil
}

// update changes what is ours and nothing else.
func (c *companions) update(ctx context.Context, n, w *networkingv1.NetworkPolicy) error {
	next := n.DeepCopy()
	next.Spec, next.OwnerReferences = w.Spec, w.OwnerReferences
	for key, value := range w.Labels {
		metav1.SetMetaDataLabel(&next.ObjectMeta, key, value)
	}
	for key, value := range w.Annotations {
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, key, value)
	}
	if _, err := c.client.NetworkingV1().NetworkPolicies(w.Namespace).Update(ctx, next, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("changing the companion %s/%s: %w", w.Namespace, w.Name, err)
	}
	return nil
}

// drifted tells whether an object is not as wanted. What others added is let be.
func drifted(n, w *networkingv1.NetworkPolicy) bool {
	for key, value := range w.Labels {
		if n.Labels[key] != value {
			return true
		}
	}
	return n.Annotations[PolicyAnnotation] != w.Annotations[PolicyAnnotation] ||
		!equality.Semantic.DeepEqual(n.Spec, w.Spec) || !equality.Semantic.DeepEqual(n.OwnerReferences, w.OwnerReferences)
}

// remove deletes an object, unless it is another one by now.
func remove(ctx context.Context, client kubernetes.Interface, n *networkingv1.NetworkPolicy) error {
	err := client.NetworkingV1().NetworkPolicies(n.Namespace).Delete(ctx, n.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &n.UID}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("removing the companion %s/%s: %w", n.Namespace, n.Name, err)
	}
	return nil
}

// tellCrowded emits an event of each policy that newly goes without some companions.
func (c *companions) tellCrowded(policies []*v1alpha1.FQDNNetworkPolicy) {
	before := c.crowded
	c.crowded = map[types.UID]bool{}
	for _, p := range policies {
		c.crowded[p.UID] = true
		if !before[p.UID] {
			c.recorder.Eventf(policyRef(p), nil, corev1.EventTypeWarning, ReasonTooManyCompanions, actionOpen,
				"the namespace needs more than %d companions, so some pods get none: allow UDP and TCP 53 to the endpoint in its NetworkPolicies, or use fewer selectors", maxCompanions)
		}
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
