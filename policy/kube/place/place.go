// Package place tells whether a node is one of the agents' nodes, and lets pods
// come to it when its agent is ready.
package place

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

// Options are what a Place is made of; all are required.
type Options struct {
	Client kubernetes.Interface
	// Node is the node's name.
	Node string
	// Namespace and DaemonSet are those of the agents.
	Namespace, DaemonSet string
	Log                  *slog.Logger
}

// Place is one agent's place: its node and its DaemonSet, as the API server told
// of them last.
type Place struct {
	o Options

	mu   sync.Mutex
	set  *appsv1.DaemonSet // nil before it was seen
	gone bool              // it was seen and is not there any more
	node *corev1.Node      // nil before it was seen
}

// New returns a place that knows nothing yet.
func New(o Options) (*Place, error) {
	if o.Client == nil || o.Node == "" || o.Namespace == "" || o.DaemonSet == "" || o.Log == nil {
		return nil, errors.New("a place needs a client, a log, and the names of node, namespace and DaemonSet")
	}
	return &Place{o: o}, nil
}

// Run follows both objects until ctx ends. What was known stays known, so that
// Leaving answers while the agent ends.
func (p *Place) Run(ctx context.Context) error {
	name := func(n string) func(*metav1.ListOptions) {
		return func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", n).String()
		}
	}
	sets := p.o.Client.AppsV1().DaemonSets(p.o.Namespace)
	nodes := p.o.Client.CoreV1().Nodes()
	setWatch := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			name(p.o.DaemonSet)(&o)
			return sets.List(ctx, o)
		},
		WatchFuncWithContext: watchWith(sets.Watch, name(p.o.DaemonSet)),
	}, p.o.Client)
	nodeWatch := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			name(p.o.Node)(&o)
			return nodes.List(ctx, o)
		},
		WatchFuncWithContext: watchWith(nodes.Watch, name(p.o.Node)),
	}, p.o.Client)
	_, setInformer := cache.NewInformerWithOptions(cache.InformerOptions{ListerWatcher: setWatch, ObjectType: &appsv1.DaemonSet{}, Handler: p.onSet()})
	_, nodeInformer := cache.NewInformerWithOptions(cache.InformerOptions{ListerWatcher: nodeWatch, ObjectType: &corev1.Node{}, Handler: p.onNode()})
	var wg sync.WaitGroup
	wg.Go(func() { setInformer.RunWithContext(ctx) })
	wg.Go(func() { nodeInformer.RunWithContext(ctx) })
	wg.Wait()
	return nil
}

func (p *Place) onSet() cache.ResourceEventHandlerFuncs {
	take := func(o any) {
		if s, ok := o.(*appsv1.DaemonSet); ok {
			p.mu.Lock()
			p.set, p.gone = s, false
			p.mu.Unlock()
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    take,
		UpdateFunc: func(_, o any) { take(o) },
		DeleteFunc: func(any) {
			p.mu.Lock()
			p.gone = true
			p.mu.Unlock()
		},
	}
}

func (p *Place) onNode() cache.ResourceEventHandlerFuncs {
	take := func(o any) {
		if n, ok := o.(*corev1.Node); ok {
			p.mu.Lock()
			p.node = n
			p.mu.Unlock()
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: take, UpdateFunc: func(_, o any) { take(o) }}
}

// Leaving tells whether an agent that ends is not to come back to this node: its
// DaemonSet is gone or on its way, or does not want the node any more. Before both
// objects were seen it is false.
func (p *Place) Leaving() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone || p.set != nil && p.set.DeletionTimestamp != nil {
		return true
	}
	if p.set == nil || p.node == nil {
		return false
	}
	// What the DaemonSet controller decides by, as far as it moves pods that run:
	// taints do not count, the agents tolerate them.
	wanted, err := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: p.set.Spec.Template.Spec}).Match(p.node)
	return err == nil && !wanted
}

// Taint is on a node from its registration, by the administrator's choice, until
// its agent is ready.
const Taint = "namegate.io/agent-not-ready"

// takeTries is how often a change of the node is tried that others change too.
const takeTries = 5

// ClearTaint takes the taint from the node, if it is there.
func (p *Place) ClearTaint(ctx context.Context) error {
	nodes := p.o.Client.CoreV1().Nodes()
	for try := 1; ; try++ {
		n, err := nodes.Get(ctx, p.o.Node, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read the taints of node %s: %w", p.o.Node, err)
		}
		patch, err := withoutTaint(n)
		if patch == nil || err != nil {
			return err
		}
		_, err = nodes.Patch(ctx, p.o.Node, patchType, patch, metav1.PatchOptions{})
		if err == nil {
			p.o.Log.Info("the node's taint is taken away", "taint", Taint)
			return nil
		}
		if !apierrors.IsConflict(err) || try == takeTries {
			return fmt.Errorf("take the taint %s from node %s: %w", Taint, p.o.Node, err)
		}
	}
}
