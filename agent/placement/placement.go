// Package placement tells whether a node is one of the agents' nodes, and lets pods
// come to it when its agent is ready.
package placement

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// Options configure a Watcher. All fields are required.
type Options struct {
	Client kubernetes.Interface
	// Node is the node's name.
	Node string
	// Namespace and DaemonSet name the agents' DaemonSet.
	Namespace, DaemonSet string
	Log                  *slog.Logger
}

// Watcher follows the Node and the DaemonSet of one agent, as the API server reported
// them last.
type Watcher struct {
	o Options

	mu   sync.Mutex
	set  *appsv1.DaemonSet // nil before it was seen
	gone bool              // it was seen and is not there any more
	node *corev1.Node      // nil before it was seen
}

// New returns a Watcher that has read nothing yet.
func New(o Options) (*Watcher, error) {
	if o.Client == nil || o.Node == "" || o.Namespace == "" || o.DaemonSet == "" || o.Log == nil {
		return nil, errors.New("a placement watcher needs a client, a log, and the names of node, namespace and DaemonSet")
	}
	return &Watcher{o: o}, nil
}

// Run follows both objects until ctx ends. What was known stays known, so that
// Leaving answers while the agent ends.
func (w *Watcher) Run(ctx context.Context) error {
	name := func(n string) func(*metav1.ListOptions) {
		return func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", n).String()
		}
	}
	sets := w.o.Client.AppsV1().DaemonSets(w.o.Namespace)
	nodes := w.o.Client.CoreV1().Nodes()
	setWatch := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			name(w.o.DaemonSet)(&o)
			return sets.List(ctx, o)
		},
		WatchFuncWithContext: watchWith(sets.Watch, name(w.o.DaemonSet)),
	}, w.o.Client)
	nodeWatch := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			name(w.o.Node)(&o)
			return nodes.List(ctx, o)
		},
		WatchFuncWithContext: watchWith(nodes.Watch, name(w.o.Node)),
	}, w.o.Client)
	_, setInformer := cache.NewInformerWithOptions(cache.InformerOptions{ListerWatcher: setWatch, ObjectType: &appsv1.DaemonSet{}, Handler: w.onSet()})
	_, nodeInformer := cache.NewInformerWithOptions(cache.InformerOptions{ListerWatcher: nodeWatch, ObjectType: &corev1.Node{}, Handler: w.onNode()})
	var wg sync.WaitGroup
	wg.Go(func() { setInformer.RunWithContext(ctx) })
	wg.Go(func() { nodeInformer.RunWithContext(ctx) })
	wg.Wait()
	return nil
}

// Agents returns how many nodes the DaemonSet wants agents on, 0 before it was seen.
func (w *Watcher) Agents() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.set == nil {
		return 0
	}
	return int(w.set.Status.DesiredNumberScheduled)
}

func (w *Watcher) onSet() cache.ResourceEventHandlerFuncs {
	take := func(o any) {
		if s, ok := o.(*appsv1.DaemonSet); ok {
			w.mu.Lock()
			w.set, w.gone = s, false
			w.mu.Unlock()
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    take,
		UpdateFunc: func(_, o any) { take(o) },
		DeleteFunc: func(any) {
			w.mu.Lock()
			w.gone = true
			w.mu.Unlock()
		},
	}
}

func (w *Watcher) onNode() cache.ResourceEventHandlerFuncs {
	take := func(o any) {
		if n, ok := o.(*corev1.Node); ok {
			w.mu.Lock()
			w.node = n
			w.mu.Unlock()
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: take, UpdateFunc: func(_, o any) { take(o) }}
}

// Leaving tells whether an agent that ends is not to come back to this node: its
// DaemonSet is gone or on its way, or does not want the node any more. Before both
// objects were seen it is false.
func (w *Watcher) Leaving() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone || w.set != nil && w.set.DeletionTimestamp != nil {
		return true
	}
	if w.set == nil || w.node == nil {
		return false
	}
	// The DaemonSet controller's criteria for moving running pods. Taints do not count:
	// the agents tolerate them.
	wanted, err := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: w.set.Spec.Template.Spec}).Match(w.node)
	return err == nil && !wanted
}

// Taint is on a node from its registration, by the administrator's choice, until
// its agent is ready.
const Taint = "namegate.io/agent-not-ready"

// takeTries is how often a change of the node is tried that others change too.
const takeTries = 5

// ClearTaint takes the taint from the node, if it is there.
func (w *Watcher) ClearTaint(ctx context.Context) error {
	nodes := w.o.Client.CoreV1().Nodes()
	for try := 1; ; try++ {
		n, err := nodes.Get(ctx, w.o.Node, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read the taints of node %s: %w", w.o.Node, err)
		}
		patch, err := withoutTaint(n)
		if patch == nil || err != nil {
			return err
		}
		_, err = nodes.Patch(ctx, w.o.Node, patchType, patch, metav1.PatchOptions{})
		if err == nil {
			w.o.Log.Info("removed the node's startup taint", "taint", Taint)
			return nil
		}
		if !apierrors.IsConflict(err) || try == takeTries {
			return fmt.Errorf("take the taint %s from node %s: %w", Taint, w.o.Node, err)
		}
	}
}
