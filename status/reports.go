package status

import (
	"context"
	"log/slog"
	"reflect"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// reports are the findings of all nodes by their Leases. It is the handler of an informer of Leases,
// and lasts for one term. The Lease of a deleted Node goes with it, as its owner.
type reports struct {
	client    kubernetes.Interface
	namespace string
	now       func() time.Time
	log       *slog.Logger
	changed   func(policy string) // the findings of a policy changed; it must not wait

	mu       sync.Mutex
	byLease  map[string]*report
	byPolicy map[string]map[string][]entry // by policy and Lease
}

// report is the content of a Lease and its time by this agent's clock: the clocks of
// two nodes may differ.
type report struct {
	lease    *coordinationv1.Lease
	at       time.Time
	findings []entry
}

var _ cache.ResourceEventHandler = &reports{}

func newReports(r *Reporter, changed func(string)) *reports {
	return &reports{client: r.o.Client, namespace: r.o.Namespace, now: r.now, log: r.log, changed: changed,
		byLease: map[string]*report{}, byPolicy: map[string]map[string][]entry{}}
}

// of returns what all nodes found of a policy.
func (r *reports) of(policy string) (all []entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, entries := range r.byPolicy[policy] {
		all = append(all, entries...)
	}
	return all
}

// OnAdd takes in a new Lease.
func (r *reports) OnAdd(object any, _ bool) { r.OnUpdate(nil, object) }

// OnUpdate takes in a Lease. A large cluster has many renewals each second: one that says the same
// as before changes no findings.
func (r *reports) OnUpdate(_, object any) {
	l, ok := object.(*coordinationv1.Lease)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.byLease[l.Name]
	next := &report{lease: l, at: r.now()}
	if last != nil && last.lease.Spec.RenewTime.Equal(l.Spec.RenewTime) { // another program changed it
		next.at = last.at
	}
	if !r.stale(next) {
		next.findings = r.read(l)
	}
	r.replace(l.Name, last, next)
}

// OnDelete forgets a Lease.
func (r *reports) OnDelete(object any) {
	name, err := cache.DeletionHandlingObjectToName(object)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.replace(name.Name, r.byLease[name.Name], nil)
}

// stale tells whether a report counts no more.
func (r *reports) stale(of *report) bool { return r.now().Sub(of.at) >= staleAfter }

// read returns the findings of a Lease.
func (r *reports) read(l *coordinationv1.Lease) []entry {
	d, err := decodeDigest(l.Annotations[FindingsAnnotation])
	if err != nil {
		r.log.Warn("a node's findings are left out", "lease", l.Name, "error", err)
	}
	if d.More > 0 {
		r.log.Warn("a node has more findings than its Lease has room for", "lease", l.Name, "left out", d.More)
	}
	for i := range d.Findings {
		d.Findings[i].Node = l.Annotations[NodeAnnotation]
	}
	return d.Findings
}

// replace replaces the report of a Lease; nil: there is none. mu is held.
func (r *reports) replace(lease string, last, next *report) {
	var before, after []entry
	if last != nil {
		before = last.findings
	}
	if delete(r.byLease, lease); next != nil {
		r.byLease[lease], after = next, next.findings
	}
	if reflect.DeepEqual(before, after) {
		return
	}
	policies := map[string]bool{}
	for _, e := range before {
		policies[e.Policy] = true
		delete(r.byPolicy[e.Policy], lease)
	}
	for _, e := range after {
		policies[e.Policy] = true
		if r.byPolicy[e.Policy] == nil {
			r.byPolicy[e.Policy] = map[string][]entry{}
		}
		r.byPolicy[e.Policy][lease] = append(r.byPolicy[e.Policy][lease], e)
	}
	for id := range policies {
		if len(r.byPolicy[id]) == 0 {
			delete(r.byPolicy, id)
		}
		r.changed(id)
	}
}

// expire ends the reports of Leases that were not renewed for long, and removes these Leases.
func (r *reports) expire(ctx context.Context) {
	var gone []*report
	r.mu.Lock()
	for _, of := range r.byLease {
		if r.stale(of) {
			gone = append(gone, of)
		}
	}
	for _, of := range gone {
		r.replace(of.lease.Name, of, &report{lease: of.lease, at: of.at})
	}
	r.mu.Unlock()
	for _, of := range gone {
		r.remove(ctx, of.lease)
	}
}

// remove deletes a Lease unless its node has just renewed it.
func (r *reports) remove(ctx context.Context, l *coordinationv1.Lease) {
	err := r.client.CoordinationV1().Leases(r.namespace).Delete(ctx, l.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &l.UID, ResourceVersion: &l.ResourceVersion},
	})
	switch {
	case err == nil:
		r.log.Info("the Lease of a node without an agent is removed", "lease", l.Name)
	case !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && ctx.Err() == nil:
		r.log.Warn("the Lease of a node without an agent stays; trying again", "lease", l.Name, "error", err)
	}
}
