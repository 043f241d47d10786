package status

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coordinationinformers "k8s.io/client-go/informers/coordination/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

const (
	// expireEvery is how often the elected agent looks for Leases that are not renewed any more.
	expireEvery = 30 * time.Second
	// gatherFor is how long changes of Leases are gathered for one write.
	gatherFor = 100 * time.Millisecond
)

// term is one agent's time as the elected one: a queue of policies whose conditions may differ, and
// workers that reconcile them.
type term struct {
	*Reporter
	limiter workqueue.TypedRateLimiter[key]
	queue   workqueue.TypedRateLimitingInterface[key]
	reports *reports
	failing atomic.Bool

	mu      sync.Mutex
	index   *index
	written map[key]*written
}

// lead writes for the cluster until ctx ends; then no request is under way.
func (r *Reporter) lead(ctx context.Context) {
	r.log.Info("this agent writes the policies' conditions now")
	t := r.newTerm()
	var work sync.WaitGroup
	defer work.Wait()
	defer t.queue.ShutDown()
	leases := coordinationinformers.NewFilteredLeaseInformer(r.o.Client, r.o.Namespace, 0, nil, func(o *metav1.ListOptions) { o.LabelSelector = nodeLeases.String() })
	handler, err := leases.AddEventHandler(t.reports)
	if err != nil { // only where the informer has ended
		r.log.Error("the Leases of nodes cannot be watched", "error", err)
		return
	}
	work.Go(func() { leases.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
		return
	}
	for range statusesInFlight {
		work.Go(func() { t.work(ctx) })
	}
	work.Go(func() {
		for r.wait(ctx, nil, expireEvery) {
			t.reports.expire(ctx)
		}
	})
	for t.follow(); r.wait(ctx, r.leadChanged, expireEvery); t.follow() {
	}
}

func (r *Reporter) newTerm() *term {
	t := &term{Reporter: r, limiter: workqueue.NewTypedItemExponentialFailureRateLimiter[key](firstWait, mostWait), index: newIndex(&State{}), written: map[key]*written{}}
	t.queue = workqueue.NewTypedRateLimitingQueue(t.limiter)
	t.reports = newReports(r, func(id string) {
		t.mu.Lock()
		k, known := t.index.keys[id]
		t.mu.Unlock()
		if known {
			t.queue.AddAfter(k, gatherFor)
		}
	})
	return t
}

// nodeLeases are the labels of all nodes' Leases.
var nodeLeases = labels.SelectorFromSet(labels.Set{ManagedByLabel: ManagedBy, leaseLabel: "node"})

// follow has the policies reconciled that changed since the last call.
func (t *term) follow() {
	s := t.state.Load()
	if s == nil || t.index.unchanged(s) { // index changes here alone
		return
	}
	next := newIndex(s)
	keys := next.changed(t.index)
	t.mu.Lock()
	t.index = next
	t.mu.Unlock()
	for _, k := range keys {
		t.queue.Add(k)
	}
}

// work reconciles policies until the queue is shut down.
func (t *term) work(ctx context.Context) {
	for {
		k, shutdown := t.queue.Get()
		if shutdown {
			return
		}
		if ctx.Err() == nil {
			if err := t.reconcile(ctx, k); err != nil {
				t.failed(ctx, err)
				t.queue.AddRateLimited(k)
			}
		}
		t.queue.Done(k)
	}
}
