// Package placement tells whether a node is one of the agents' nodes, and lets pods
// come to it when its agent is ready.
package placement

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/namegate/namegate/status"
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
	o           Options
	sets, nodes cache.SharedIndexInformer
	seen        atomic.Bool // the DaemonSet
}

// New returns a Watcher that has read nothing yet.
func New(o Options) (*Watcher, error) {
	if o.Client == nil || o.Node == "" || o.Namespace == "" || o.DaemonSet == "" || o.Log == nil {
		return nil, errors.New("a placement watcher needs a client, a log, and the names of node, namespace and DaemonSet")
	}
	named := func(name string) func(*metav1.ListOptions) {
		return func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
		}
	}
	w := &Watcher{
		o: o, sets: appsinformers.NewFilteredDaemonSetInformer(o.Client, o.Namespace, 0, nil, named(o.DaemonSet)),
		nodes: coreinformers.NewFilteredNodeInformer(o.Client, 0, nil, named(o.Node)),
	}
	_, err := w.sets.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { w.seen.Store(true) }})
	return w, err
}

// Run follows both objects until ctx ends. What was known stays known, so that
// Leaving answers while the agent ends.
func (w *Watcher) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { w.sets.RunWithContext(ctx) })
	wg.Go(func() { w.nodes.RunWithContext(ctx) })
	wg.Wait()
	return nil
}

// set returns the DaemonSet, nil before it was seen, and whether it is gone since.
func (w *Watcher) set() (set *appsv1.DaemonSet, gone bool) {
	seen := w.seen.Load()
	for _, o := range w.sets.GetStore().List() {
		set, _ = o.(*appsv1.DaemonSet)
	}
	return set, set == nil && seen
}

// Agents returns how many nodes the DaemonSet wants agents on, 0 before it was seen.
func (w *Watcher) Agents() int {
	set, _ := w.set()
	if set == nil {
		return 0
	}
	return int(set.Status.DesiredNumberScheduled)
}

// Uninstalling tells whether the DaemonSet is marked as about to be removed: then
// nothing is to be written to the API server any more. The same is so once it is
// gone. Before it was seen it is false.
func (w *Watcher) Uninstalling() bool {
	set, gone := w.set()
	return gone || set != nil && set.Annotations[status.UninstallingAnnotation] != ""
}

// Leaving tells whether an agent that ends is not to come back to this node: its
// DaemonSet is gone or on its way, or does not want the node any more. Before both
// objects were seen it is false.
func (w *Watcher) Leaving() bool {
	set, gone := w.set()
	if gone || set != nil && set.DeletionTimestamp != nil {
		return true
	}
	nodes := w.nodes.GetStore().List()
	if set == nil || len(nodes) == 0 {
		return false
	}
	// The DaemonSet controller's criteria for moving running pods. Taints do not count:
	// the agents tolerate them.
	wanted, err := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: set.Spec.Template.Spec}).Match(nodes[0].(*corev1.Node))
	return err == nil && !wanted
}
