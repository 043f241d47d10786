package grants

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"sync"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/share"
)

const (
	// batchGrants is how many grants one write has: the time that it takes is the time that all
	// others wait, a few milliseconds.
	batchGrants = 512
	// turnGrants is how many of them a pod has at least while others wait too.
	turnGrants = 32
)

// waitingShare is of grants that wait for the writer. One request of each pod waits in any case.
var waitingShare = share.Bound{Resource: "grants that wait for the kernel", Least: 256, Each: 16384, All: 131072}

// addrsKept bounds the capacity that a spare request keeps.
const addrsKept = 256

// request is one call of GrantThen. It holds copies of the grants.
type request struct {
	grants []policy.Grant
	addrs  []netip.Addr // of grants
	by     []string     // of grants
	size   int          // of all grants
	next   int          // the first of grants that is not written yet
	end    int          // of those that the batch takes, which begin with next
	then   Callback
	err    error
	sets   []int // of the batch, that decide
	// taken is what takes over the last name that was granted by another view than the latest.
	taken     []taking
	takenView *policy.View
	takenName fqdn.Name
}

// Callback receives the result of a GrantThen. more: the same goroutine calls another
// callback right after it.
type Callback = interface {
	Granted(err error, more bool)
	// Waits tells whether the result still counts. Grants for which it does not count are not written.
	// It must not block.
	Waits() bool
}

// errQueue is the result of a grant for which the queue has no place, errLeft of one whose result does not
// count any more.
var (
	errQueue = errors.New("too many grants of the pod wait for the kernel")
	errLeft  = errors.New("the query was answered without it")
)

// GrantThen opens addresses for pods. then receives the result once the kernel has acknowledged all of
// them, or an error: the pod is not selected, no policy of it allows the name on those ports any more, or
// the kernel refused; then some of the addresses may be open. It is called once, on any goroutine and
// perhaps before GrantThen returns, and must not block. GrantThen copies the grants, and has no timeout.
func (t *Table) GrantThen(grants []policy.Grant, then Callback) {
	if len(grants) == 0 {
		then.Granted(nil, false)
	} else if !t.enter(t.request(grants, then)) {
		t.refused.Add(1)
		then.Granted(errQueue, false)
	}
}

// queue is the requests that wait for the writer. A pod's turn is a part of a request.
type queue struct {
	mu      sync.Mutex
	writing bool       // the writer runs, as long as requests wait
	batch   []*request // of the writer
	waiting share.Queue[policy.PodRef, *request]
	grants  map[policy.PodRef]int // that wait
	total   int
}

// enter has a request wait for the writer, unless its pod has too many grants that wait.
func (t *Table) enter(r *request) bool {
	pod := r.grants[0].Pod
	q := &t.queue
	q.mu.Lock()
	own := q.grants[pod]
	if own > 0 && waitingShare.Room(own, q.total) < r.size {
		q.mu.Unlock()
		return false
	}
	if q.grants == nil {
		q.grants = map[policy.PodRef]int{}
	}
	q.grants[pod] = own + r.size
	q.total += r.size
	q.waiting.Push(pod, r)
	writing := q.writing
	q.writing = true
	q.mu.Unlock()
	if !writing {
		go t.writer()
	}
	return true
}

// finish hands over the result of a request. more: other callbacks follow.
func (t *Table) finish(r *request, more bool) {
	then, err := r.then, r.err
	if err != nil {
		t.refused.Add(1)
	}
	if cap(r.addrs) <= addrsKept { // else it has grown large
		r.then = nil
		t.spare.Put(r)
	}
	then.Granted(err, more)
}

// request returns a spare request, or a new one, with copies of grants.
func (t *Table) request(grants []policy.Grant, then Callback) *request {
	r, ok := t.spare.Get().(*request)
	if !ok {
		r = &request{}
	}
	r.then, r.grants = then, append(r.grants[:0], grants...)
	r.addrs, r.by, r.sets, r.err = r.addrs[:0], r.by[:0], r.sets[:0], nil
	r.taken, r.takenView = nil, nil
	r.size, r.next, r.end = 0, 0, 0
	for i := range r.grants {
		g := &r.grants[i]
		addrs, by := len(r.addrs), len(r.by)
		r.addrs, r.by = append(r.addrs, g.Addrs...), append(r.by, g.By...)
		r.size += len(g.Addrs)
		g.Addrs, g.By = r.addrs[addrs:len(r.addrs):len(r.addrs)], r.by[by:len(r.by):len(r.by)]
	}
	if p := t.pod(r.grants[0].Pod); p != nil {
		r.coming(p.latest.Load(), &r.grants[0]) // without mu
	}
	return r
}

// runWriter writes the queue, batch by batch, until it is empty. The next batch gathers
// during a write.
func (t *Table) runWriter() {
	for {
		// Callers that are ready to run queue their requests first: twice as many share
		// one write.
		runtime.Gosched()
		requests := t.gather()
		if len(requests) == 0 {
			return
		}
		t.write(requests)
		clear(requests)
	}
}

// gather returns the requests of the next batch, each with the part of its grants that is its
// turn. The rest of a request comes before the pod's other requests. Without a batch the writer has ended.
func (t *Table) gather() []*request {
	q := &t.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	batch, left := q.batch[:0], batchGrants
	turn := max(turnGrants, left/max(q.waiting.Subjects(), 1))
	for left > 0 {
		pod, r, ok := q.waiting.Next()
		if !ok {
			break
		}
		if r.err == nil && !r.then.Waits() {
			r.err = errLeft
		}
		taken, again := 0, r.end > r.next
		for r.end < len(r.grants) && (taken == 0 || r.err != nil || taken+len(r.grants[r.end].Addrs) <= turn) {
			taken += len(r.grants[r.end].Addrs)
			r.end++
		}
		if r.err == nil {
			left -= taken
		}
		if q.total -= taken; q.grants[pod] == taken {
			delete(q.grants, pod)
		} else {
			q.grants[pod] -= taken
		}
		if r.end < len(r.grants) {
			q.waiting.PushFront(pod, r)
		}
		if !again {
			batch = append(batch, r)
		}
	}
	q.batch, q.writing = batch, len(batch) > 0
	return batch
}

// write writes the grants of requests whose turn it is, and hands over the results of those that
// end.
func (t *Table) write(requests []*request) {
	t.mu.Lock()
	t.beginBatch()
	t.batch.requests = requests
	for _, r := range requests {
		for r.sets = r.sets[:0]; r.next < r.end && r.err == nil; r.next++ {
			r.err = t.stageGrant(r, &r.grants[r.next])
		}
		r.next = r.end
	}
	t.writeBatch()
	for _, r := range requests {
		for _, i := range r.sets {
			if err := t.batch.sets[i].err; err != nil && r.err == nil {
				r.err = fmt.Errorf("grant %s to pod %s: %w", r.grants[0].Name, r.grants[0].Pod, err)
			}
		}
	}
	t.mu.Unlock()
	requests = slices.DeleteFunc(requests, func(r *request) bool { return r.next < len(r.grants) })
	for i, r := range requests {
		t.finish(r, i < len(requests)-1)
	}
}

// stageGrant adds one grant to the batch. The view that decided it is not asked again, unless it is an
// older one.
func (t *Table) stageGrant(r *request, g *policy.Grant) error {
	p := t.pod(g.Pod)
	if p == nil || !slices.Contains(p.views, g.View) && !p.allowsName(g.Name, target{g.Rule, g.Ports}) {
		return fmt.Errorf("grant %s to pod %s on %s: no policy allows it any more", g.Name, g.Pod, g.Ports)
	}
	why := reason{name: g.Name, until: t.cfg.Clock.at(g.Deadline), since: t.batch.at.now, by: matchesOf(g.By)}
	if p.renews && !g.Rule.Lasting() {
		why.renew, why.until = true, roundUp(why.until, t.batch.at.now)
	}
	to, coming := target{g.Rule, g.Ports}, r.coming(p.latest.Load(), g)
	for _, a := range g.Addrs {
		none := true
		for s := range t.setsOf(p, g.Pod, to, a.Is6()) {
			r.waitFor(t.batch.stage(s, a, why))
			none = false
		}
		if none && (g.Rule == "" || len(p.subjects) == 0) {
			return fmt.Errorf("grant %s to pod %s on %s: the pod has no such set", g.Name, g.Pod, g.Ports)
		}
		t.stageComing(r, p, coming, g, a, why)
		t.outlast(p, a, r)
	}
	return nil
}

// waitFor has the request wait for a set of the batch; -1 is none.
func (r *request) waitFor(i int) {
	if r != nil && i >= 0 && !slices.Contains(r.sets, i) {
		r.sets = append(r.sets, i)
	}
}

// allowsName tells whether a view of the pod has a rule that covers a name. The caller
// holds Table.mu.
func (p *podGrants) allowsName(name fqdn.Name, to target) bool {
	return slices.ContainsFunc(p.views, func(v *policy.View) bool { return v.Covers(name, to.rule, to.ports) })
}
