package status

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
)

const (
	// passAgain is the longest time between two looks at everything.
	passAgain = 30 * time.Second
	// passRest is between two looks, so that a burst of changes is one.
	passRest = 100 * time.Millisecond
)

// term is one agent's time as the elected one.
type term struct {
	*Reporter
	statuses   *statuses
	survey     *survey
	companions *companions // nil: not wanted
	leases     cache.SharedIndexInformer
	others     cache.SharedIndexInformer // NetworkPolicies, nil: not wanted
	pods       cache.SharedIndexInformer // nil: companions open no ports
	nodes      cache.SharedIndexInformer // nil: the same
	calm       atomic.Pointer[map[string]bool]
	openable   map[types.UID]openableSince // since when a policy's ports may be opened
	services   *compile.NamedServices      // as of servicesOf
	servicesOf services
	accepted   map[types.UID]acceptance
	begun      time.Time
}

// acceptance is what Validate says of one generation of a policy.
type acceptance struct {
	generation int64
	problems   []policy.Problem
	openable   bool                 // companions may open ports
	ports      *compile.TargetPorts // these, nil where they may not
}

// lead writes for the cluster until ctx ends; then no request is under way.
func (r *Reporter) lead(ctx context.Context) {
	r.log.Info("this agent writes the policies' conditions now")
	t := r.newTerm()
	var feeds sync.WaitGroup
	defer feeds.Wait()
	feeds.Go(func() { t.leases.RunWithContext(ctx) })
	synced := []cache.InformerSynced{t.leases.HasSynced}
	for _, i := range []cache.SharedIndexInformer{t.others, t.pods, t.nodes} {
		if i != nil {
			feeds.Go(func() { i.RunWithContext(ctx) })
		}
	}
	if t.others != nil { // pods and Nodes may come later: conditions do not wait for them
		synced = append(synced, t.others.HasSynced)
	} else if _, err := r.dropCompanions(ctx); err != nil {
		r.log.Debug("companions of earlier days, if there are any, stay", "error", err)
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return
	}
	for {
		again := t.pass(ctx)
		if !r.wait(ctx, r.leadNews, again) || !r.wait(ctx, nil, passRest) {
			return
		}
	}
}

func (r *Reporter) newTerm() *term {
	t := &term{
		Reporter: r,
		statuses: &statuses{client: r.o.Dynamic, recorder: r.recorder, log: r.log, written: map[types.UID]*written{}},
		survey:   &survey{client: r.o.Client, namespace: r.o.Namespace, log: r.log, identity: r.o.Identity, seen: map[string]*sighting{}},
		accepted: map[types.UID]acceptance{},
		begun:    r.clock.Now(),
		openable: map[types.UID]openableSince{},
		services: compile.NewNamedServices("", nil),
	}
	leases := r.o.Client.CoordinationV1().Leases(r.o.Namespace)
	t.leases = r.informer(&coordinationv1.Lease{}, &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = nodeLeases.String()
			return leases.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = nodeLeases.String()
			return leases.Watch(ctx, o)
		},
	})
	if !r.o.Companion || len(r.o.Endpoint) == 0 {
		return t
	}
	t.companions = &companions{
		client: r.o.Client, recorder: r.recorder, herald: newHerald(r.recorder), log: r.log, endpoint: r.o.Endpoint, stopped: r.o.Uninstalling,
		clock: r.clock, tries: map[types.NamespacedName]*patience{},
	}
	if r.o.CompanionPorts == PortsAsked || r.o.CompanionPorts == PortsAlways {
		t.pods, t.nodes = t.podInformer(), t.nodeInformer()
		t.survey.bootOf = t.bootOf
	}
	others := r.o.Client.NetworkingV1().NetworkPolicies(metav1.NamespaceAll)
	t.others = r.informer(&networkingv1.NetworkPolicy{}, &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return others.List(ctx, o)
		},
		WatchFuncWithContext: others.Watch,
	})
	return t
}

// nodeLeases are the labels of all nodes' Leases.
var nodeLeases = labels.SelectorFromSet(labels.Set{ManagedByLabel: ManagedBy, leaseLabel: "node"})

// informer follows objects and wakes the term with each change.
func (r *Reporter) informer(example runtime.Object, lw *cache.ListWatch) cache.SharedIndexInformer {
	i := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, r.o.Client), example, 0, cache.Indexers{})
	wake := func() { note(r.leadNews) }
	// It fails only where the informer has ended.
	_, _ = i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { wake() },
		UpdateFunc: func(before, after any) {
			if !renewed(before, after) {
				wake()
			}
		},
		DeleteFunc: func(any) { wake() },
	})
	return i
}

// renewed tells whether a Lease was renewed and says the same as before: many are
// each second in a large cluster, and the next look at everything is soon enough.
func renewed(before, after any) bool {
	b, ok := before.(*coordinationv1.Lease)
	a, both := after.(*coordinationv1.Lease)
	return ok && both && a.Annotations[FindingsAnnotation] == b.Annotations[FindingsAnnotation]
}

// pass looks at everything once and returns when to look again.
func (t *term) pass(ctx context.Context) time.Duration {
	now := t.clock.Now()
	again := passAgain
	sooner := func(d time.Duration) {
		if d > 0 {
			again = min(again, d)
		}
	}
	policies, problems, told := t.state()
	if !told {
		return again // no policies is another thing than policies that are not known
	}
	byPolicy := t.survey.gather(ctx, now, listed[*coordinationv1.Lease](t.leases))
	if t.companions != nil {
		t.bringServices()
	}
	all := make([]status, 0, len(policies))
	for id, p := range policies {
		found := slices.Concat(problems["policy "+id], t.validate(p).problems)
		all = append(all, status{p, conditionsOf(p, found, byPolicy[id])})
	}
	// Neither waits for the other: both may have thousands of objects to write.
	written := make(chan time.Duration, 1)
	go func() { written <- t.statuses.bring(ctx, t.clock.Now, all) }()
	if t.companions != nil {
		others := listed[*networkingv1.NetworkPolicy](t.others)
		o := t.opening(now, policies, others, problems, byPolicy)
		sooner(t.companions.bring(ctx, now, policies, others, o.ports))
		sooner(t.say(now, policies, o))
	}
	sooner(<-written)
	t.forget(policies)
	return again
}

// bringServices takes over what the Reporter was told of Services.
func (t *term) bringServices() {
	switch now := t.toldServices(); {
	case now.domain != t.servicesOf.domain:
		t.services = compile.NewNamedServices(now.domain, now.list)
		clear(t.accepted) // their ports are of another domain
		t.servicesOf = now
	case !now.same(t.servicesOf):
		t.services = t.services.Next(now.list)
		t.servicesOf = now
	}
}

// validate returns what Validate says and what follows of it, once for each generation.
func (t *term) validate(p *v1alpha1.FQDNNetworkPolicy) acceptance {
	a, known := t.accepted[p.UID]
	if !known || a.generation != p.Generation || p.Generation == 0 {
		problems := compile.Validate(p)
		a = acceptance{generation: p.Generation, problems: problems, openable: openable(p, problems)}
		if t.pods != nil && a.openable {
			a.ports = compile.NewTargetPorts(p, t.services.Domain())
		}
		t.accepted[p.UID] = a
	}
	return a
}

// forget drops what is known of policies that are gone.
func (t *term) forget(policies map[string]*v1alpha1.FQDNNetworkPolicy) {
	t.statuses.forget(policies)
	if len(t.accepted) <= len(policies) && len(t.openable) <= len(policies) {
		return
	}
	there := make(map[types.UID]bool, len(policies))
	for _, p := range policies {
		there[p.UID] = true
	}
	gone := func(uid types.UID) bool { return !there[uid] }
	maps.DeleteFunc(t.accepted, func(uid types.UID, _ acceptance) bool { return gone(uid) })
	maps.DeleteFunc(t.openable, func(uid types.UID, _ openableSince) bool { return gone(uid) })
}

// listed returns what an informer knows. It is shared and must not be changed.
func listed[T any](i cache.SharedIndexInformer) []T {
	objects := i.GetStore().List()
	out := make([]T, 0, len(objects))
	for _, o := range objects {
		if t, ok := o.(T); ok {
			out = append(out, t)
		}
	}
	return out
}
