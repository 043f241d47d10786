package status

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/netpolicyfor"
)

// Options are the parameters of a Reporter. Client, Dynamic, Namespace and Log are always
// needed; Node and Identity for Run; DaemonSet for Withdraw.
type Options struct {
	Client  kubernetes.Interface
	Dynamic dynamic.Interface // policies are written through it
	// Namespace is Namegate's own, where the Leases are.
	Namespace string
	Node      string
	Identity  string // the agent's pod, the holder of its Lease
	DaemonSet string // the agents'
	// Endpoint is where agents serve pods, for NetworkPolicies that open it in another engine.
	Endpoint netpolicyfor.Serving
	// Version and Enforce are the agent's version and which NetworkPolicies it enforces, for its Lease.
	Version, Enforce string
	// Nodes: the agents enforce policies for nodes.
	Nodes bool
	// Uninstalling tells whether Namegate is being removed: then nothing is written
	// any more. It may be called at any time; nil: never.
	Uninstalling func() bool
	// Agents returns how many agents the cluster has; 0: not known. The more there are, the
	// less often each reads the Lease of the elected one. It may be called at any time; nil: never known.
	Agents func() int
	Log    *slog.Logger
}

// State is what an agent knows of its cluster and its node. A receiver may keep it and must not
// change it.
type State struct {
	Policies               []*v1alpha1.FQDNNetworkPolicy
	ClusterPolicies        []*v1alpha1.ClusterFQDNNetworkPolicy
	NodePolicies           []*v1alpha1.NodeNetworkPolicy
	ClusterNetworkPolicies []*unstructured.Unstructured
	NetworkPolicies        []*networkingv1.NetworkPolicy
	// Problems are those of the source: the parts of policies that it could not read.
	Problems []policy.Problem
	// Compiled are those of the last compile. Of them only those of cluster policies without room
	// count, which each agent finds.
	Compiled []policy.Problem
	// Findings are all of this node. InSync: the latest policies are in force on it.
	Findings []Finding
	InSync   bool
}

// Reporter writes to the API server what users must know.
type Reporter struct {
	o     Options
	now   func() time.Time // the election, the queue and the recorder of events have the system's
	log   *slog.Logger
	terms electionTimes
	// recorder is set while Run runs.
	recorder events.EventRecorder

	state                    atomic.Pointer[State] // nil before Set
	nodeChanged, leadChanged chan struct{}         // the state was set
}

// New returns a Reporter. It asks nothing of the API server before Run or Withdraw.
func New(o Options) (*Reporter, error) {
	switch {
	case o.Client == nil || o.Dynamic == nil || o.Log == nil:
		return nil, errors.New("a reporter needs both clients and a log")
	case o.Namespace == "":
		return nil, errors.New("the namespace of Namegate is missing; write --namespace, as metadata.namespace of the agent's pod says it")
	}
	if o.Uninstalling == nil {
		o.Uninstalling = func() bool { return false }
	}
	if o.Agents == nil {
		o.Agents = func() int { return 0 }
	}
	return &Reporter{
		o: o, now: time.Now, log: o.Log, terms: defaultTimes,
		nodeChanged: make(chan struct{}, 1), leadChanged: make(chan struct{}, 1),
	}, nil
}

// Set replaces the state. It may be called at any time, costs next to nothing and never waits.
func (r *Reporter) Set(s State) {
	r.state.Store(&s)
	note(r.nodeChanged)
	note(r.leadChanged)
}

// note leaves a note in c, which has room for one, without waiting.
func note(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// nodeTick is how often an agent looks whether something is due.
const nodeTick = time.Second

// Run writes the state, once it is set, until ctx ends; then it returns nil, and no request except
// for events is in flight. An API server that is unavailable or refuses is logged and
// retried. A Reporter is run once.
func (r *Reporter) Run(ctx context.Context) error {
	if r.o.Node == "" || r.o.Identity == "" {
		return errors.New("the node or the pod of the agent is not known; write --node-name and --pod-name, as the fields of the agent's pod say them")
	}
	broadcaster := events.NewBroadcaster(eventSink{&events.EventSinkImpl{Interface: r.o.Client.EventsV1()}})
	defer broadcaster.Shutdown()
	r.recorder = broadcaster.NewRecorder(runtime.NewScheme(), controllerName) // every object comes as a reference
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("begin to emit events: %w", err)
	}
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { r.runNode(ctx) })
	r.elect(ctx)
	return nil
}

// runNode reports what this node found, until ctx ends: each time in its Lease, and by events.
func (r *Reporter) runNode(ctx context.Context) {
	lease := newNodeLease(r)
	for {
		if s := r.state.Load(); s != nil && !r.o.Uninstalling() {
			findings := sortedFindings(s.Findings)
			if lease.sync(ctx, findings) {
				emit(r.recorder, findings, s)
			}
		}
		if !r.wait(ctx, r.nodeChanged, nodeTick) {
			return
		}
	}
}

// wait returns true after a note or d, false when ctx ended.
func (r *Reporter) wait(ctx context.Context, notes <-chan struct{}, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-notes:
	case <-time.After(d):
	}
	return ctx.Err() == nil
}
