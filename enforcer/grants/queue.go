package grants

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

const (
	// queueMax bounds the requests that wait for the writer: as many as the proxy has
	// queries in flight by default, 4096, and as many again for warm-ups, which have 16
	// questions in flight for each of some 250 pods.
	queueMax = 8192
	// batchMax bounds the requests of one batch.
	batchMax = 256
)

// addrsKept bounds the capacity that a spare request keeps.
const addrsKept = 256

// request is one call of Grant or GrantThen. It holds copies of the grants: the caller may
// leave before the kernel has answered.
type request struct {
	grants []policy.Grant
	addrs  []netip.Addr // of grants
	by     []string     // of grants
	left   atomic.Bool  // the caller does not wait any more
	done   chan error   // of capacity one
	then   Callback     // is called instead of done
	err    error
	waits  []int // the sets of the batch that decide
}

// Grant opens addresses for pods and returns after the kernel has acknowledged all of
// them, or with an error: the pod is not selected, no policy of it allows the name on
// those ports any more, the kernel refused, or ctx ended first. After an error some of
// the addresses may be open.
func (t *Table) Grant(ctx context.Context, grants []policy.Grant) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if t.Covered(grants) {
		return nil
	}
	r := t.request(grants)
	select {
	case t.queue <- r:
	case <-ctx.Done():
		t.refused.Add(1)
		return fmt.Errorf("too many grants wait for the kernel: %w", ctx.Err())
	}
	t.startWriter()
	// The kernel cannot be interrupted, the caller can: the write continues.
	select {
	case err := <-r.done:
		if err != nil {
			t.refused.Add(1)
		}
		t.recycle(r)
		return err
	case <-ctx.Done():
		r.left.Store(true)
		t.refused.Add(1)
		return fmt.Errorf("the kernel did not acknowledge in time: %w", ctx.Err())
	}
}

// Callback receives the result of a GrantThen. more: the same goroutine calls another
// callback right after it.
type Callback = interface{ Granted(err error, more bool) }

// errQueue is the result of a grant for which the queue has no place.
var errQueue = errors.New("too many grants wait for the kernel")

// GrantThen is Grant without waiting: then receives the result, once, on any goroutine
// and perhaps before GrantThen returns. It copies the grants, and has no timeout. then
// must not block.
func (t *Table) GrantThen(grants []policy.Grant, then Callback) {
	r := t.request(grants)
	r.then = then
	select {
	case t.queue <- r:
		t.startWriter()
	default:
		t.refused.Add(1)
		then.Granted(errQueue, false)
	}
}

// finish hands over the result of a request. more: other callbacks follow.
func (t *Table) finish(r *request, more bool) {
	then, err := r.then, r.err
	if then == nil {
		r.done <- err
		return
	}
	if err != nil {
		t.refused.Add(1)
	}
	t.recycle(r)
	then.Granted(err, more)
}

// recycle keeps a request for the next call, unless it has grown large.
func (t *Table) recycle(r *request) {
	if cap(r.addrs) <= addrsKept {
		r.then = nil
		t.spare.Put(r)
	}
}

// request returns a spare request, or a new one, with copies of grants.
func (t *Table) request(grants []policy.Grant) *request {
	r, ok := t.spare.Get().(*request)
	if !ok {
		r = &request{done: make(chan error, 1)}
	}
	r.grants = append(r.grants[:0], grants...)
	r.addrs, r.by, r.waits, r.err = r.addrs[:0], r.by[:0], r.waits[:0], nil
	for i := range r.grants {
		g := &r.grants[i]
		addrs, by := len(r.addrs), len(r.by)
		r.addrs, r.by = append(r.addrs, g.Addrs...), append(r.by, g.By...)
		g.Addrs, g.By = r.addrs[addrs:len(r.addrs):len(r.addrs)], r.by[by:len(r.by):len(r.by)]
	}
	return r
}

// startWriter starts the writer if it does not run.
func (t *Table) startWriter() {
	if !t.writing.Load() && t.writing.CompareAndSwap(false, true) {
		go t.runWriter()
	}
}

// runWriter writes the queue, batch by batch, until it is empty. The next batch gathers
// during a write.
func (t *Table) runWriter() {
	var waiting []*request
	for {
		// Callers that are ready to run queue their requests first: twice as many share
		// one write.
		runtime.Gosched()
		waiting = t.gather(waiting[:0])
		if len(waiting) > 0 {
			t.write(waiting)
			continue
		}
		if t.retire() {
			return
		}
	}
}

// retire ends the writer, and tells whether it may end: a caller that queued a request
// just before saw it running, and leaves the request to this writer or to the next.
func (t *Table) retire() bool {
	t.writing.Store(false)
	return len(t.queue) == 0 || !t.writing.CompareAndSwap(false, true)
}

// gather appends the requests that wait.
func (t *Table) gather(waiting []*request) []*request {
	for len(waiting) < batchMax {
		select {
		case r := <-t.queue:
			waiting = append(waiting, r)
		default:
			return waiting
		}
	}
	return waiting
}

// write writes the grants of requests, and hands over each one's result.
func (t *Table) write(requests []*request) {
	t.mu.Lock()
	t.batch.begin(t.cfg.Clock.read())
	for _, r := range requests {
		for i := range r.grants {
			if r.left.Load() || r.err != nil {
				break
			}
			r.err = t.stageGrant(r, &r.grants[i])
		}
	}
	t.writeBatch()
	for _, r := range requests {
		for _, i := range r.waits {
			if err := t.batch.sets[i].err; err != nil && r.err == nil {
				r.err = fmt.Errorf("grant %s to pod %s: %w", r.grants[0].Name, r.grants[0].Pod, err)
			}
		}
	}
	t.mu.Unlock()
	last := len(requests) - 1 // of those with a callback
	for last >= 0 && requests[last].then == nil {
		last--
	}
	for i, r := range requests {
		t.finish(r, i < last)
	}
}

// stageGrant adds one grant to the batch.
func (t *Table) stageGrant(r *request, g *policy.Grant) error {
	p := t.pod(g.Pod)
	// The view that decided the grant need not be asked again, unless it is an older one.
	if p == nil || !slices.Contains(p.views, g.View) && !p.allowsName(g.Name, g.Rule, g.Ports) {
		return fmt.Errorf("grant %s to pod %s on %s: no policy allows it any more", g.Name, g.Pod, g.Ports)
	}
	why := reason{name: g.Name, until: t.cfg.Clock.at(g.Deadline), since: t.batch.at.now, by: matchesOf(g.By)}
	if p.renews && !g.Rule.Lasting() {
		why.renew, why.until = true, roundUp(why.until, t.batch.at.now)
	}
	if sets := p.sets.Load(); g.Rule != "" || len(sets.subjects) > 0 {
		return t.stageByRules(r, p, g, why)
	}
	sets := p.sets.Load().byPorts[g.Ports]
	for _, a := range g.Addrs {
		s := sets[of(a.Is6())]
		if s == nil {
			return noSet(g)
		}
		r.wait(t.batch.stage(s, a, why))
	}
	return nil
}

// wait has the request wait for a set of the batch; -1 is none.
func (r *request) wait(i int) {
	if r != nil && i >= 0 && !slices.Contains(r.waits, i) {
		r.waits = append(r.waits, i)
	}
}

func noSet(g *policy.Grant) error {
	return fmt.Errorf("grant %s to pod %s on %s: the pod has no such set", g.Name, g.Pod, g.Ports)
}

// allowsName tells whether a view of the pod has a rule that covers a name. The caller
// holds Table.mu.
func (p *podGrants) allowsName(name fqdn.Name, rule policy.RuleID, ports policy.PortSet) bool {
	return slices.ContainsFunc(p.views, func(v *policy.View) bool { return v.Covers(name, rule, ports) })
}
