package companion

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	networkinginformers "k8s.io/client-go/informers/networking/v1"
	"k8s.io/client-go/kubernetes"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/status/event"
)

// Options say for whom a Controller writes. All are needed.
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

// Standing is what is known of the policies on a node.
type Standing int

// The values of Standing.
const (
	NotInForce Standing = iota // nothing says that they are in force
	InForce
	Unproven // they were, by the word of an agent that may have ended long ago
)

// Node is what the agent of a node says.
type Node struct {
	Standing Standing
	// Boot is the boot of the node's kernel that Standing is about, "" if it is not known.
	Boot string
}

// Bypass is a node on which connections of a policy's pods pass the verdict by.
type Bypass struct {
	Node, Reason, Message string
}

// State is what is known of the cluster beside NetworkPolicies, pods and Nodes. Policies are
// by "namespace/name".
type State struct {
	Policies map[string]*v1alpha1.FQDNNetworkPolicy
	Accepted map[string]bool   // the policies that select pods
	Bypassed map[string]Bypass // the policies that do not hold on some node
	Nodes    map[string]Node   // by name
	Services Services
}

// Controller keeps the companions of the cluster for one term. Reconcile and what it calls
// are for one goroutine.
type Controller struct {
	o      Options
	writer *writer
	dedup  event.Dedup

	networkPolicies cache.SharedIndexInformer
	pods, nodes     cache.SharedIndexInformer       // nil: companions open no ports
	enforcing       atomic.Pointer[map[string]bool] // the nodes on which policies are in force

	begun    time.Time
	state    State                       // of this call of Reconcile
	crowded  map[types.UID]bool          // announced already
	openable map[types.UID]openableSince // since when a policy's ports may be opened
	ports    map[types.UID]rulePorts
	services *compile.NamedServices // index of indexed
	indexed  Services
}

// New returns a Controller. It asks nothing of the API server before Run.
func New(o Options) *Controller {
	c := &Controller{
		o: o, writer: &writer{Options: o, attempts: map[types.NamespacedName]*attempt{}}, begun: o.Now(),
		openable: map[types.UID]openableSince{}, ports: map[types.UID]rulePorts{}, services: compile.NewNamedServices("", nil),
		networkPolicies: networkinginformers.NewNetworkPolicyInformer(o.Client, metav1.NamespaceAll, 0, nil),
	}
	c.notify(c.networkPolicies, func(any, any) bool { return true })
	if o.Ports.some() {
		c.pods = c.trimmed(coreinformers.NewPodInformer(o.Client, metav1.NamespaceAll, 0, nil), trimPod, c.podMatters)
		c.nodes = c.trimmed(coreinformers.NewNodeInformer(o.Client, 0, nil), trimNode, bootChanged)
	}
	return c
}

// notify calls Changed for the changes that matter. before is nil for a new object, after for
// a deleted one.
func (c *Controller) notify(i cache.SharedIndexInformer, matters func(before, after any) bool) {
	note := func(before, after any) {
		if matters(before, after) {
			c.o.Changed()
		}
	}
	// It fails only where the informer has ended.
	_, _ = i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { note(nil, o) }, UpdateFunc: note, DeleteFunc: func(o any) { note(o, nil) },
	})
}

// Run watches NetworkPolicies, and where companions open ports pods and Nodes, until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	var watches sync.WaitGroup
	defer watches.Wait()
	for _, i := range []cache.SharedIndexInformer{c.networkPolicies, c.pods, c.nodes} {
		if i != nil {
			watches.Go(func() { i.RunWithContext(ctx) })
		}
	}
}

// HasSynced tells whether the NetworkPolicies are known. Pods and Nodes may come later.
func (c *Controller) HasSynced() bool { return c.networkPolicies.HasSynced() }

// Reconcile writes the companions that differ and returns how long to wait before it must be
// called again, 0 if only a change makes that necessary. HasSynced must be true.
func (c *Controller) Reconcile(ctx context.Context, now time.Time, s State) time.Duration {
	c.state = s
	c.takeServices()
	objects, _ := networkinglisters.NewNetworkPolicyLister(c.networkPolicies.GetIndexer()).List(labels.Everything()) // it never fails
	r := c.newRound(now, objects)
	all, crowded := wanted(s.Policies, objects, c.o.Endpoint, r.portsOf)
	c.announceCrowded(crowded)
	again := c.writer.write(ctx, now, all, objects)
	c.announce(s.Policies, r)
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

// forget drops what is known of policies that are gone.
func (c *Controller) forget() {
	if len(c.ports) <= len(c.state.Policies) && len(c.openable) <= len(c.state.Policies) {
		return
	}
	there := make(map[types.UID]bool, len(c.state.Policies))
	for _, p := range c.state.Policies {
		there[p.UID] = true
	}
	maps.DeleteFunc(c.ports, func(uid types.UID, _ rulePorts) bool { return !there[uid] })
	maps.DeleteFunc(c.openable, func(uid types.UID, _ openableSince) bool { return !there[uid] })
}
