package status

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cfqdnnp"
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

// Reporter writes to the API server what users must know. Its Set functions may be called
// at any time; they are cheap and never wait.
type Reporter struct {
	o     Options
	now   func() time.Time // the election and the recorder of events have the system's
	log   *slog.Logger
	terms electionTimes
	// recorder is set while Run runs.
	recorder events.EventRecorder

	mu       sync.Mutex
	last     policyList // of SetPolicies
	input    input
	set      bool      // policies were set
	findings []Finding // sorted
	known    bool      // findings were set

	nodeChanged, leadChanged chan struct{} // something was set
}

// input is the cluster's state as the Set functions got it. Its maps are replaced, never
// changed.
type input struct {
	policies map[string]*v1alpha1.FQDNNetworkPolicy // by "namespace/name"
	problems map[string][]policy.Problem            // by "policy namespace/name"
	cluster  clusterPolicies
	crowded  map[string][]policy.Problem // of cluster policies, by object
}

// clusterPolicies is an argument of SetClusterPolicies.
type clusterPolicies struct {
	policies []*v1alpha1.ClusterFQDNNetworkPolicy
	problems map[string][]policy.Problem // by "clusterpolicy name"
	standard []*unstructured.Unstructured
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

// policyList is an argument of SetPolicies.
type policyList struct {
	policies []v1alpha1.FQDNNetworkPolicy
	problems []policy.Problem
}

// same tells whether both are the same list, with problems that say the same.
func (l policyList) same(o policyList) bool {
	return len(l.policies) > 0 && len(l.policies) == len(o.policies) && &l.policies[0] == &o.policies[0] && reflect.DeepEqual(l.problems, o.problems)
}

// SetPolicies sets all policies, with the problems of those that the source could not
// read completely. The Reporter keeps both. Setting the same list again, as a source does
// while other objects change, costs next to nothing.
func (r *Reporter) SetPolicies(policies []v1alpha1.FQDNNetworkPolicy, problems ...policy.Problem) {
	now := policyList{policies, problems}
	r.mu.Lock()
	same := now.same(r.last)
	r.last = now
	r.mu.Unlock()
	if same {
		return
	}
	byID := make(map[string]*v1alpha1.FQDNNetworkPolicy, len(policies))
	for i := range policies {
		byID[policies[i].Namespace+"/"+policies[i].Name] = &policies[i]
	}
	byObject := map[string][]policy.Problem{}
	for _, p := range problems {
		byObject[p.Object] = append(byObject[p.Object], p)
	}
	r.mu.Lock()
	r.input.policies, r.input.problems, r.set = byID, byObject, true
	r.mu.Unlock()
	note(r.leadChanged)
}

// SetClusterPolicies sets the complete lists of cluster policies of both kinds, with the
// problems of those of ours that cannot be read completely. The Reporter keeps them.
func (r *Reporter) SetClusterPolicies(policies []*v1alpha1.ClusterFQDNNetworkPolicy, standard []*unstructured.Unstructured, problems []policy.Problem) {
	now := clusterPolicies{policies, map[string][]policy.Problem{}, standard}
	for _, p := range problems {
		if strings.HasPrefix(p.Object, cfqdnnp.Object("")) {
			now.problems[p.Object] = append(now.problems[p.Object], p)
		}
	}
	r.mu.Lock()
	changed := !slices.Equal(now.policies, r.input.cluster.policies) || !slices.Equal(standard, r.input.cluster.standard) || !reflect.DeepEqual(now.problems, r.input.cluster.problems)
	r.input.cluster = now
	r.mu.Unlock()
	if changed {
		note(r.leadChanged)
	}
}

// SetCrowded takes, of the problems that a compile found, those of cluster policies that have
// rules without room: each agent finds the same.
func (r *Reporter) SetCrowded(problems []policy.Problem) {
	now := map[string][]policy.Problem{}
	for _, p := range problems {
		if p.Reason == policy.ReasonNoRoom {
			now[p.Object] = append(now[p.Object], p)
		}
	}
	r.mu.Lock()
	changed := !maps.EqualFunc(now, r.input.crowded, func(a, b []policy.Problem) bool { return reflect.DeepEqual(a, b) })
	r.input.crowded = now
	r.mu.Unlock()
	if changed {
		note(r.leadChanged)
	}
}

// SetFindings says what this node found, all of it.
func (r *Reporter) SetFindings(findings []Finding) {
	sorted := sortedFindings(findings)
	r.mu.Lock()
	changed := !r.known || !slices.Equal(r.findings, sorted)
	r.findings, r.known = sorted, true
	r.mu.Unlock()
	if changed {
		note(r.nodeChanged)
	}
}

// state returns the state of the cluster, and whether policies were set.
func (r *Reporter) state() (in input, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.input, r.set
}

// found returns this node's findings and whether they are known.
func (r *Reporter) found() ([]Finding, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.findings, r.known
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

// Run writes the state until ctx ends; then it returns nil, and no request except for
// events is in flight. An API server that is unavailable or refuses is logged and
// retried. A Reporter is run once.
func (r *Reporter) Run(ctx context.Context) error {
	if r.o.Node == "" || r.o.Identity == "" {
		return errors.New("the node or the pod of the agent is not known; write --node-name and --pod-name, as the fields of the agent's pod say them")
	}
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: r.o.Client.EventsV1()})
	defer broadcaster.Shutdown()
	r.recorder = broadcaster.NewRecorder(eventScheme(), controllerName)
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("begin to emit events: %w", err)
	}
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { r.runNode(ctx) })
	r.elect(ctx)
	return nil
}

// runNode reports what this node found, until ctx ends.
func (r *Reporter) runNode(ctx context.Context) {
	lease := &nodeLease{Reporter: r}
	events := findingEvents{recorder: r.recorder}
	for {
		if findings, known := r.found(); known && !r.o.Uninstalling() {
			in, _ := r.state()
			events.emit(r.now(), findings, in.policies, in.cluster.policies)
			lease.sync(ctx, findings)
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
