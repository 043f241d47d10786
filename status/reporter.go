package status

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
)

// Options say for whom a Reporter writes. Client, Dynamic, Namespace and Log are
// always needed; Node and Identity for Run; DaemonSet for Withdraw.
type Options struct {
	Client  kubernetes.Interface
	Dynamic dynamic.Interface // policies are written through it
	// Namespace is Namegate's own, where the Leases are.
	Namespace string
	Node      string
	Identity  string // the agent's pod: who holds a Lease
	DaemonSet string // the agents'
	// Boot is the id of the node's boot, as the kubelet says it of its Node: the text of
	// /proc/sys/kernel/random/boot_id. Companions open no port to pods of a node that was
	// booted after its agent was heard of. "": not known.
	Boot string
	// Companion makes the elected agent write companions, which open Endpoint, and
	// where CompanionPorts says so the ports of their policies' rules.
	Companion      bool
	Endpoint       []netip.Prefix
	CompanionPorts CompanionPorts
	// Uninstalling tells whether Namegate is being removed: then nothing is written
	// any more. It may be called at any time; nil: never.
	Uninstalling func() bool
	Log          *slog.Logger
	Clock        Clock // nil: the system's
}

// Reporter writes to the API server what users must know. Its Set functions may be called
// at any time; they are cheap and never wait.
type Reporter struct {
	o     Options
	clock Clock
	log   *slog.Logger
	terms electionTimes
	// recorder is set while Run runs.
	recorder events.EventRecorder

	mu       sync.Mutex
	given    given
	policies map[string]*v1alpha1.FQDNNetworkPolicy // by "namespace/name"
	problems map[string][]policy.Problem            // by "policy namespace/name"
	told     bool                                   // policies were set
	services services
	findings []Finding // sorted
	known    bool      // findings were set
	ready    bool

	nodeNews, leadNews chan struct{} // something was set
}

// New returns a Reporter. It asks nothing of the API server before Run or Withdraw.
func New(o Options) (*Reporter, error) {
	switch {
	case o.Client == nil || o.Dynamic == nil || o.Log == nil:
		return nil, errors.New("a reporter needs both clients and a log")
	case o.Namespace == "":
		return nil, errors.New("the namespace of Namegate is missing; write --namespace, as metadata.namespace of the agent's pod says it")
	}
	if err := o.CompanionPorts.Check(); err != nil {
		return nil, err
	}
	if o.Clock == nil {
		o.Clock = systemClock{}
	}
	if o.Uninstalling == nil {
		o.Uninstalling = func() bool { return false }
	}
	return &Reporter{
		o: o, clock: o.Clock, log: o.Log, terms: defaultTimes,
		nodeNews: make(chan struct{}, 1), leadNews: make(chan struct{}, 1),
	}, nil
}

// given is what SetPolicies was told last.
type given struct {
	policies []v1alpha1.FQDNNetworkPolicy
	problems []policy.Problem
}

// again tells whether that is told once more: the same list, and problems that say the
// same.
func (g given) again(o given) bool {
	return len(g.policies) > 0 && len(g.policies) == len(o.policies) && &g.policies[0] == &o.policies[0] && reflect.DeepEqual(g.problems, o.problems)
}

// SetPolicies says which policies there are, all of them, with what the source
// found in those that it could not read whole. The Reporter keeps both. To be told the
// same list again, as a source does while other things change, costs next to nothing.
func (r *Reporter) SetPolicies(policies []v1alpha1.FQDNNetworkPolicy, problems ...policy.Problem) {
	now := given{policies, problems}
	r.mu.Lock()
	again := now.again(r.given)
	r.given = now
	r.mu.Unlock()
	if again {
		return
	}
	byID := byIdentity(policies)
	byObject := map[string][]policy.Problem{}
	for _, p := range problems {
		byObject[p.Object] = append(byObject[p.Object], p)
	}
	r.mu.Lock()
	r.policies, r.problems, r.told = byID, byObject, true
	r.mu.Unlock()
	note(r.leadNews)
}

// SetFindings says what this node found, all of it.
func (r *Reporter) SetFindings(findings []Finding) {
	sorted := sortedFindings(findings)
	r.mu.Lock()
	news := !r.known || !slices.Equal(r.findings, sorted)
	r.findings, r.known = sorted, true
	r.mu.Unlock()
	if news {
		note(r.nodeNews)
	}
}

// SetReady says whether the policies that the agent knows are in force on this node;
// until it says so they are not. Where they are not, companions open no port to pods of
// the node.
func (r *Reporter) SetReady(ready bool) {
	r.mu.Lock()
	news := r.ready != ready
	r.ready = ready
	r.mu.Unlock()
	if news {
		note(r.nodeNews)
	}
}

func (r *Reporter) isReady() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ready
}

// state returns the policies and their problems, and whether they are known.
// Nobody may change them.
func (r *Reporter) state() (policies map[string]*v1alpha1.FQDNNetworkPolicy, problems map[string][]policy.Problem, told bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.policies, r.problems, r.told
}

// found returns this node's findings and whether they are known.
func (r *Reporter) found() ([]Finding, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.findings, r.known
}

// note wakes whoever waits for c, without waiting.
func note(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// nodeTick is how often an agent looks whether something is due.
const nodeTick = time.Second

// Run writes what is set until ctx ends; then it returns nil, and no request but
// those of events is under way. An API server that is away or refuses is logged and
// tried again. A Reporter is run once.
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

// runNode tells what this node found, until ctx ends.
func (r *Reporter) runNode(ctx context.Context) {
	lease := &nodeLease{Reporter: r}
	herald := newHerald(r.recorder)
	for {
		if findings, known := r.found(); known && !r.o.Uninstalling() {
			policies, _, _ := r.state()
			herald.tell(r.clock.Now(), findings, policies)
			lease.keep(ctx, findings)
		}
		if !r.wait(ctx, r.nodeNews, nodeTick) {
			return
		}
	}
}

// wait returns true after news or d, false when ctx ended.
func (r *Reporter) wait(ctx context.Context, news <-chan struct{}, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-news:
	case <-r.clock.After(d):
	}
	return ctx.Err() == nil
}
