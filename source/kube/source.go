package kube

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cnp"
	"github.com/namegate/namegate/source/cni"
)

// The delays of a Source. Changes often arrive in bursts: a State is made when QuietDelay
// has passed without another change, at the latest MostDelay after the first, and MostDelay
// after the State before, so that each object of a flood causes no compile. Both are
// short, because a new pod's queries are parked until its State is in force. Pods of
// other nodes are many and can wait longer: their changes are gathered for RemoteDelay,
// and prolong nothing.
//
// A policy or a pod may be the first for which pods of other nodes are needed. Without
// them its pods could not reach such peers, and their open connections would be cut for
// good. So States wait for them, at most PeersPatience: a longer wait would delay the
// policy itself, and a new pod's queries are parked for at most two seconds.
const (
	QuietDelay    = 20 * time.Millisecond
	MostDelay     = 200 * time.Millisecond
	RemoteDelay   = 100 * time.Millisecond
	PeersPatience = time.Second
)

// Options are the parameters of a Source. Client, Dynamic, NodeName and Log are needed.
type Options struct {
	Client   kubernetes.Interface
	Dynamic  dynamic.Interface // policies come through it
	NodeName string            // the pods of this node are read
	Services []policy.ServiceRef
	// EnforceNetworkPolicies has NetworkPolicies enforced alone, as compile.Input has it.
	EnforceNetworkPolicies bool
	// ClusterNetworkPolicies reads those of policy.networking.k8s.io, where they are served.
	ClusterNetworkPolicies bool
	// Nodes reads what policies for nodes need: Own and APIServers of policy.Cluster.
	Nodes bool
	// OwnNodeOnly watches the Node of this node alone, in place of all Nodes. It goes with neither
	// Nodes nor ClusterNetworkPolicies.
	OwnNodeOnly bool
	// CNIResults lets the first State wait for SetResults: pods that an earlier agent knew
	// from their results alone are not without policies in between.
	CNIResults bool
	Log        *slog.Logger
	Clock      clock.Clock // nil: the system's
}

// Source reads policies, namespaces, this node's pods and what else the agent must
// know of the cluster from its API server, and watches their changes.
type Source struct {
	client  kubernetes.Interface
	dynamic dynamic.Interface
	node    string
	log     *slog.Logger
	clock   clock.Clock

	link    *link
	events  chan struct{}                       // something has changed
	others  chan struct{}                       // a pod of another node has changed
	watched atomic.Pointer[[]policy.ServiceRef] // of which EndpointSlices are watched: sorted, each once; not nil
	watches sync.WaitGroup

	pods            *store[podEntry]
	results         atomic.Pointer[cni.Results] // nil: not known yet
	policies        *store[policyEntry]
	clusterPolicies *optionalKind[clusterPolicyEntry]
	nodePolicies    *optionalKind[nodePolicyEntry]
	standard        *optionalKind[clusterNetworkPolicyEntry] // nil: not wanted
	networkPolicies *store[networkPolicyEntry]
	namespaces      *store[namespaceEntry]
	services        *store[serviceEntry]
	nodes           *store[nodeEntry]
	all             []interface{ synced() bool } // these stores
	ownOnly         bool                         // it watches its own Node only
	hosts           bool                         // Own and APIServers are wanted
	ranges          atomic.Pointer[netipx.IPSet] // the cluster ranges; not nil

	// The fields below are for Run's goroutine alone.
	sliceWatches map[policy.ServiceRef]*sliceWatch
	remote       remote
	assembly     assembly
	logged       []policy.Problem // logged already
	emitted      time.Time        // when the last State was
}

// New returns a source. It asks nothing of the API server before Run.
func New(o Options) (*Source, error) {
	switch {
	case o.Client == nil || o.Dynamic == nil || o.Log == nil:
		return nil, errors.New("a source of the API server needs both clients and a log")
	case o.NodeName == "":
		return nil, errors.New("the name of the node is missing; write --node-name, as spec.nodeName of the agent's pod says it")
	}
	s := &Source{client: o.Client, dynamic: o.Dynamic, node: o.NodeName, log: o.Log, clock: o.Clock,
		events: make(chan struct{}, 1), others: make(chan struct{}, 1), sliceWatches: map[policy.ServiceRef]*sliceWatch{}}
	if s.clock == nil {
		s.clock = clock.RealClock{}
	}
	s.remote.feeds, s.remote.most, s.remote.turns = map[string]*remoteFeed{}, MaxRemoteNamespaces, make(chan struct{}, remoteLists)
	s.assembly.state.Input.EnforceNetworkPolicies = o.EnforceNetworkPolicies
	s.assembly.yielded = map[*podEntry]*policy.Pod{}
	s.link = newLink(s.log, s.clock.Now)
	s.link.changed = s.note
	s.assembly.watched = &[]policy.ServiceRef{}
	s.watched.Store(s.assembly.watched)
	s.Follow(o.Services)
	s.pods = newStore(s.note, readPod(s.node))
	if !o.CNIResults {
		s.results.Store(&cni.Results{})
	}
	s.policies = newStore(s.note, readPolicy)
	s.policies.written = wroteStatus[v1alpha1.FQDNNetworkPolicy]
	s.clusterPolicies = newOptionalKind(s.note, readClusterPolicy, v1alpha1.ClusterGroupVersionResource(), "upgrade Namegate's chart")
	s.clusterPolicies.written = wroteStatus[v1alpha1.ClusterFQDNNetworkPolicy]
	s.nodePolicies = newOptionalKind(s.note, readNodePolicy, v1alpha1.NodeGroupVersionResource(), "upgrade Namegate's chart")
	s.nodePolicies.written = wroteStatus[v1alpha1.NodeNetworkPolicy]
	if o.ClusterNetworkPolicies {
		s.standard = newOptionalKind(s.note, readClusterNetworkPolicy, cnp.Resource(), "install Namegate's chart with clusterNetworkPolicy.enabled=true")
		s.standard.written = wroteStandardStatus
	}
	s.networkPolicies = newStore(s.note, readNetworkPolicy)
	s.namespaces = newStore(s.note, readNamespace)
	s.services = newStore(s.note, readService)
	own := ""
	if o.Nodes {
		own = s.node
	}
	s.nodes = newStore(s.note, readNode(o.ClusterNetworkPolicies || o.Nodes, own))
	s.nodes.trim = trimNode
	s.ownOnly, s.hosts = o.OwnNodeOnly, o.Nodes
	s.all = append(s.all, s.pods, s.policies, s.clusterPolicies, s.nodePolicies, s.networkPolicies, s.namespaces, s.services, s.nodes)
	if s.standard != nil {
		s.all = append(s.all, s.standard)
	}
	s.SetClusterRanges(nil)
	return s, nil
}

// SetResults gives the source the results of the node's network plugins. A pod of this
// node has the addresses of its result from then on, unless its status has those of a later
// sandbox: the kubelet publishes the same addresses later. It may be called at any time; r must not be
// changed afterwards.
func (s *Source) SetResults(r cni.Results) {
	s.results.Store(&r)
	s.note()
}

// note notes that something has changed.
func (s *Source) note() { leaveNote(s.events) }

// noteRemote notes that a pod of another node has changed.
func (s *Source) noteRemote() { leaveNote(s.others) }

// leaveNote leaves one note in a channel that has room for one.
func leaveNote(notes chan struct{}) {
	select {
	case notes <- struct{}{}:
	default:
	}
}

// Health returns the Source's connection to the API server. It may be called at any time.
func (s *Source) Health() Health { return s.link.health() }

// Run calls receive with the state of the cluster, once everything is known and then
// after each burst of changes, until ctx ends; then it returns nil. It calls receive from
// this goroutine. When the API server is unavailable, the last State stays valid. A Source is run once.
func (s *Source) Run(ctx context.Context, receive func(State)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer s.watches.Wait()
	defer cancel()
	s.start(ctx)
	for s.syncSlices(ctx); !s.complete(ctx); s.syncSlices(ctx) {
		select {
		case <-ctx.Done():
			return nil
		case <-s.events:
		case <-s.others:
		}
	}
	for s.emit(receive); s.wait(ctx); s.emit(receive) {
		s.syncSlices(ctx)
		s.watchRemote(ctx)
	}
	return nil
}

// start begins to read all but the EndpointSlices.
func (s *Source) start(ctx context.Context) {
	core := s.client.CoreV1()
	own := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", s.node).String()
	}
	pods, spaces, services := core.Pods(""), core.Namespaces(), core.Services("")
	networkPolicies := s.client.NetworkingV1().NetworkPolicies("")
	policies := s.dynamic.Resource(v1alpha1.GroupVersionResource())
	// A list from the API server's cache may be older than what the agent before this one knew: the
	// rules of a pod that it lacks would be removed for a moment. A streamed list is never older.
	s.watch(ctx, "pods", newRequests(s.client, own, pods.List, pods.Watch), &corev1.Pod{}, s.pods)
	s.watch(ctx, "namespaces", newRequests(s.client, unfiltered, spaces.List, spaces.Watch), &corev1.Namespace{}, s.namespaces)
	s.watch(ctx, "services", newRequests(s.client, unfiltered, services.List, services.Watch), &corev1.Service{}, s.services)
	s.watch(ctx, "nodes", s.nodeRequests(), &corev1.Node{}, s.nodes)
	s.watch(ctx, "networkpolicies", newRequests(s.client, unfiltered, networkPolicies.List, networkPolicies.Watch), &networkingv1.NetworkPolicy{}, s.networkPolicies)
	s.watch(ctx, v1alpha1.Resource, newRequests(s.dynamic, unfiltered, policies.List, policies.Watch), &unstructured.Unstructured{}, s.policies)
	watchOptional(ctx, s, s.clusterPolicies)
	watchOptional(ctx, s, s.nodePolicies)
	if s.standard != nil {
		watchOptional(ctx, s, s.standard)
	}
}

// watch keeps a store filled until ctx ends.
func (s *Source) watch(ctx context.Context, name string, r requests, example runtime.Object, store cache.ReflectorStore) {
	s.run(ctx, &listWatch{name: name, requests: r, link: s.link, after: s.clock.After}, example, store)
}

func (s *Source) run(ctx context.Context, f *listWatch, example runtime.Object, store cache.ReflectorStore) {
	s.watches.Go(func() {
		f.run(ctx, example, store)
		s.link.end(f)
	})
}

// complete tells whether everything is known, pods of other nodes too if they are needed.
func (s *Source) complete(ctx context.Context) bool {
	all := s.filled() // before need reads all of it
	s.watchRemote(ctx)
	return all && s.remote.known()
}

// filled tells whether everything is known that is needed in any case.
func (s *Source) filled() bool {
	for _, f := range s.sliceWatches {
		if !f.slices.synced() {
			return false
		}
	}
	return s.results.Load() != nil && !slices.ContainsFunc(s.all, func(from interface{ synced() bool }) bool { return !from.synced() })
}

// wait returns true when a burst of changes is over, false when ctx ended.
func (s *Source) wait(ctx context.Context) bool {
	var quiet, most, others <-chan time.Time
	after := func(d time.Duration) <-chan time.Time {
		return s.clock.After(max(d, MostDelay-s.clock.Since(s.emitted)))
	}
	for {
		select {
		case <-ctx.Done():
			return false
		case <-quiet:
			return true
		case <-most:
			return true
		case <-others:
			return true
		case <-s.others:
			if s.remote.deadline != nil {
				return true
			}
			if others == nil {
				others = after(RemoteDelay)
			}
		case <-s.remote.deadline:
			s.remote.deadline = nil
			return true
		case <-s.remote.idle:
			s.endRemote()
		case <-s.events:
			quiet = after(QuietDelay)
			if most == nil {
				most = after(MostDelay)
			}
		}
	}
}

// emit passes the State to receive if it is new and waits for nothing.
func (s *Source) emit(receive func(State)) {
	if s.awaitsRemote() {
		return
	}
	state, news := s.assemble()
	if !news {
		return
	}
	s.logNew(state.Problems)
	s.emitted = s.clock.Now()
	receive(state)
}

// logNew logs the problems that the last State had not.
func (s *Source) logNew(problems []policy.Problem) {
	for _, p := range problems {
		if _, known := slices.BinarySearchFunc(s.logged, p, compareProblems); !known {
			s.log.Warn("an object has a problem", "object", p.Object, "reason", p.Reason, "path", p.Path, "message", p.Message)
		}
	}
	s.logged = problems
}
