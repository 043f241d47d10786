package companion

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	networkinginformers "k8s.io/client-go/informers/networking/v1"
	"k8s.io/client-go/kubernetes"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/status/event"
)

// Options are the parameters of a Controller. All are needed.
type Options struct {
	Client   kubernetes.Interface
	Recorder events.EventRecorder
	Log      *slog.Logger
	Endpoint []netip.Prefix // what companions open
	Ports    Ports
	// Stopped tells whether Namegate is being removed: then nothing is written any more.
	Stopped func() bool
	// Changed is called when something changed that Reconcile goes by. It must not wait.
	Changed func()
	Now     func() time.Time
}

// Bypass is a node on which connections of a policy's pods pass the verdict by.
type Bypass struct {
	Node, Reason, Message string
}

// State is the cluster's state beside NetworkPolicies. Policies are keyed by
// "namespace/name", cluster policies by "clusterpolicy name".
type State struct {
	Policies map[string]*v1alpha1.FQDNNetworkPolicy
	Cluster  []*v1alpha1.ClusterFQDNNetworkPolicy
	// Namespaces holds the labels of each namespace by its name, for Cluster.
	Namespaces map[string]map[string]string
	Accepted   map[string]bool   // the policies that select pods
	Bypassed   map[string]Bypass // the policies that do not hold on some node
	Services   Services
}

// Controller keeps the companions of the cluster for one term. Reconcile and the methods
// that it calls are for one goroutine.
type Controller struct {
	o      Options
	writer *writer
	dedup  event.Dedup

	networkPolicies cache.SharedIndexInformer

	state    State                                  // of this call of Reconcile
	policies map[string]*v1alpha1.FQDNNetworkPolicy // of state, in this call
	crowded  map[types.UID]bool                     // announced already
	openable map[inNamespace]openableSince          // since when a policy's ports may be opened
	ports    map[inNamespace]rulePorts
	services *compile.NamedServices // index of indexed
	indexed  Services
}

// New returns a Controller. It asks nothing of the API server before Run.
func New(o Options) *Controller {
	c := &Controller{
		o: o, writer: &writer{Options: o, attempts: map[types.NamespacedName]*attempt{}},
		openable: map[inNamespace]openableSince{}, ports: map[inNamespace]rulePorts{}, services: compile.NewNamedServices("", nil),
		networkPolicies: networkinginformers.NewNetworkPolicyInformer(o.Client, metav1.NamespaceAll, 0, nil),
	}
	// It fails only where the informer has ended.
	_, _ = c.networkPolicies.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { o.Changed() }, UpdateFunc: func(any, any) { o.Changed() }, DeleteFunc: func(any) { o.Changed() },
	})
	return c
}

// Run watches NetworkPolicies until ctx ends.
func (c *Controller) Run(ctx context.Context) { c.networkPolicies.RunWithContext(ctx) }

// HasSynced tells whether the NetworkPolicies are known.
func (c *Controller) HasSynced() bool { return c.networkPolicies.HasSynced() }

// Reconcile writes the companions that differ and returns how long to wait before it must be
// called again, 0 if only a change makes that necessary. HasSynced must be true.
func (c *Controller) Reconcile(ctx context.Context, now time.Time, s State) time.Duration {
	c.state = s
	c.takeServices()
	objects, _ := networkinglisters.NewNetworkPolicyLister(c.networkPolicies.GetIndexer()).List(labels.Everything()) // it never fails
	r := c.newRound(now, objects)
	all, crowded := wanted(c.policies, objects, c.o.Endpoint, r.portsOf)
	c.announceCrowded(crowded)
	again := c.writer.write(ctx, now, all, objects)
	c.announce(c.policies, r)
	c.forget()
	if r.next > 0 && (again == 0 || r.next < again) {
		again = r.next
	}
	return again
}

// takeServices indexes the Services where they changed.
func (c *Controller) takeServices() {
	switch now := c.state.Services; {
	case now.Domain != c.indexed.Domain:
		c.services = compile.NewNamedServices(now.Domain, now.List)
		clear(c.ports) // they are of another domain
		c.indexed = now
	case !now.same(c.indexed):
		c.services = c.services.Next(now.List)
		c.indexed = now
	}
}

// forget removes the state of deleted policies.
func (c *Controller) forget() {
	if len(c.ports) <= len(c.policies) && len(c.openable) <= len(c.policies) {
		return
	}
	there := make(map[inNamespace]bool, len(c.policies))
	for _, p := range c.policies {
		there[keyOf(p)] = true
	}
	maps.DeleteFunc(c.ports, func(of inNamespace, _ rulePorts) bool { return !there[of] })
	maps.DeleteFunc(c.openable, func(of inNamespace, _ openableSince) bool { return !there[of] })
}
