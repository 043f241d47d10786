package status

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	coordinationinformers "k8s.io/client-go/informers/coordination/v1"
	coordinationlisters "k8s.io/client-go/listers/coordination/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cfqdnnp"
	"github.com/namegate/namegate/policy/api/cnp"
	"github.com/namegate/namegate/policy/api/fqdnnp"
)

const (
	// passAgain is the longest time between two passes.
	passAgain = 30 * time.Second
	// passRest is between two passes, so that a burst of changes is one.
	passRest = 100 * time.Millisecond
)

// term is one agent's time as the elected one.
type term struct {
	*Reporter
	statuses *statuses
	reader   *leaseReader
	leases   cache.SharedIndexInformer
	checked  map[types.UID]checked
}

// checked is what Validate says of one generation of a policy.
type checked struct {
	generation int64
	problems   []policy.Problem
}

// lead writes for the cluster until ctx ends; then no request is under way.
func (r *Reporter) lead(ctx context.Context) {
	r.log.Info("this agent writes the policies' conditions now")
	t := r.newTerm()
	var watches sync.WaitGroup
	defer watches.Wait()
	watches.Go(func() { t.leases.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), t.leases.HasSynced) {
		return
	}
	for {
		again := t.pass(ctx)
		if !r.wait(ctx, r.leadChanged, again) || !r.wait(ctx, nil, passRest) {
			return
		}
	}
}

func (r *Reporter) newTerm() *term {
	t := &term{
		Reporter: r,
		statuses: &statuses{client: r.o.Dynamic, recorder: r.recorder, log: r.log, written: map[types.UID]*written{}},
		reader:   &leaseReader{client: r.o.Client, namespace: r.o.Namespace, log: r.log, seen: map[string]*seenLease{}},
		checked:  map[types.UID]checked{},
		leases: coordinationinformers.NewFilteredLeaseInformer(r.o.Client, r.o.Namespace, 0, nil, func(o *metav1.ListOptions) {
			o.LabelSelector = nodeLeases.String()
		}),
	}
	wake := func(any) { note(r.leadChanged) }
	// It fails only where the informer has ended.
	_, _ = t.leases.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: wake,
		UpdateFunc: func(before, after any) {
			if !renewed(before, after) {
				wake(after)
			}
		},
		DeleteFunc: wake,
	})
	return t
}

// nodeLeases are the labels of all nodes' Leases.
var nodeLeases = labels.SelectorFromSet(labels.Set{ManagedByLabel: ManagedBy, leaseLabel: "node"})

// renewed tells whether a Lease was renewed and says the same as before: a large cluster
// has many renewals each second, and the next pass is soon enough.
func renewed(before, after any) bool {
	b, ok := before.(*coordinationv1.Lease)
	a, both := after.(*coordinationv1.Lease)
	return ok && both && a.Annotations[FindingsAnnotation] == b.Annotations[FindingsAnnotation]
}

// pass makes conditions as they should be and returns when the next pass is due.
func (t *term) pass(ctx context.Context) time.Duration {
	now := t.now()
	in, known := t.state()
	if !known {
		return passAgain // no policies is another thing than policies that are not known
	}
	leases, _ := coordinationlisters.NewLeaseLister(t.leases.GetIndexer()).List(labels.Everything()) // it never fails
	byPolicy := t.reader.gather(ctx, now, leases)
	all := make([]status, 0, len(in.policies))
	for id, p := range in.policies {
		problems := slices.Concat(in.problems["policy "+id], t.validate(&p.ObjectMeta, func() []policy.Problem { return fqdnnp.Validate(p) }))
		all = append(all, namespacedStatus(p, conditionsOf(p, problems, byPolicy[id])))
	}
	for _, p := range in.cluster.policies {
		object := cfqdnnp.Object(p.Name)
		problems := slices.Concat(in.cluster.problems[object], t.validate(&p.ObjectMeta, func() []policy.Problem { return t.checks(p) }), in.crowded[object])
		all = append(all, clusterStatus(p, clusterConditionsOf(p, problems, byPolicy[p.Name])))
	}
	for _, u := range in.cluster.standard {
		p := cnp.Read(u)
		if s, ok := standardStatus(u); ok {
			s.want = standardConditionsOf(p, u.GetGeneration(), slices.Concat(p.Problems, in.crowded[p.Object]), byPolicy[p.ID])
			all = append(all, s)
		}
	}
	again := t.statuses.write(ctx, t.now, all)
	t.forget(all)
	if again == 0 {
		return passAgain
	}
	return min(again, passAgain)
}

// validate returns the problems of a policy, read once for each generation.
func (t *term) validate(m *metav1.ObjectMeta, read func() []policy.Problem) []policy.Problem {
	v, known := t.checked[m.UID]
	if !known || v.generation != m.Generation || m.Generation == 0 {
		v = checked{m.Generation, read()}
		t.checked[m.UID] = v
	}
	return v.problems
}

// forget removes the state of policies that are not in all.
func (t *term) forget(all []status) {
	there := make(map[types.UID]bool, len(all))
	for i := range all {
		there[all[i].UID] = true
	}
	t.statuses.forget(there)
	maps.DeleteFunc(t.checked, func(uid types.UID, _ checked) bool { return !there[uid] })
}

// checks are the problems of a cluster policy by itself.
func (t *term) checks(p *v1alpha1.ClusterFQDNNetworkPolicy) []policy.Problem {
	problems := cfqdnnp.Validate(p)
	if !t.o.Nodes {
		problems = append(problems, cfqdnnp.NodesDisabled(p)...)
	}
	return problems
}
