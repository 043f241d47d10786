package enforcer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/namegate/namegate/enforcer/dataplane/xtables"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

const (
	// queueMax bounds the grants that wait for the kernel at a time: as many as the
	// proxy has queries under way by default.
	queueMax = 4096
	// writersMax bounds those of one batch.
	writersMax = 256
)

// addrsKept bounds what a spare request keeps room for.
const addrsKept = 256

// request is one call of Grant on its way to the kernel, with copies of what it
// is about: the caller may leave before the kernel has answered.
type request struct {
	grants []policy.Grant
	addrs  []netip.Addr // of grants
	by     []string     // of grants
	left   atomic.Bool  // nobody waits for it any more
	done   chan error   // of one place
	then   Then         // who is told, instead of done
	err    error
	waits  []int // the sets of the batch that decide
}

// Grant opens addresses for pods and returns after the kernel has acknowledged
// all of them, or with an error: the pod is not selected, no policy of it allows
// the name on those ports any more, the kernel refused, or ctx ended first. After
// an error some of the addresses may be open.
func (e *Enforcer) Grant(ctx context.Context, grants []policy.Grant) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if e.Covered(grants) {
		return nil
	}
	r := e.request(grants)
	select {
	case e.queue <- r:
	default:
		select {
		case e.queue <- r:
		case <-ctx.Done():
			e.denials.Add(1)
			return fmt.Errorf("too many grants wait for the kernel: %w", ctx.Err())
		}
	}
	e.serve()
	// The kernel cannot be interrupted, the caller can: the write goes on.
	select {
	case err := <-r.done:
		if err != nil {
			e.denials.Add(1)
		}
		e.keep(r)
		return err
	case <-ctx.Done():
		r.left.Store(true)
		e.denials.Add(1)
		return fmt.Errorf("the kernel did not acknowledge in time: %w", ctx.Err())
	}
}

// Then is who is told what became of a GrantThen. more: others are told at once
// after it, by the same goroutine.
type Then = interface{ Granted(err error, more bool) }

// errQueue is for a grant that finds too many before it.
var errQueue = errors.New("too many grants wait for the kernel")

// GrantThen is Grant that nobody waits for: then is told the result, once, by any
// goroutine and perhaps before GrantThen returns. It copies the grants, and has no
// bound in time: whoever is tired of waiting need only not listen. then must not
// block.
func (e *Enforcer) GrantThen(grants []policy.Grant, then Then) {
	r := e.request(grants)
	r.then = then
	select {
	case e.queue <- r:
		e.serve()
	default:
		e.denials.Add(1)
		then.Granted(errQueue, false)
	}
}

// finish tells whoever waits what became of the request. more: others follow.
func (e *Enforcer) finish(r *request, more bool) {
	then, err := r.then, r.err
	if then == nil {
		r.done <- err
		return
	}
	if err != nil {
		e.denials.Add(1)
	}
	e.keep(r)
	then.Granted(err, more)
}

// serve makes the queue served, if it is not.
func (e *Enforcer) serve() {
	if !e.writing.Load() && e.writing.CompareAndSwap(false, true) {
		go e.serveQueue()
	}
}

// keep makes a request a spare one, unless it has grown big.
func (e *Enforcer) keep(r *request) {
	if cap(r.addrs) <= addrsKept {
		r.then = nil
		e.spare.Put(r)
	}
}

// request returns a spare request with copies of grants, or a new one.
func (e *Enforcer) request(grants []policy.Grant) *request {
	r, ok := e.spare.Get().(*request)
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

// serveQueue writes what waits, all of it at a time, until nothing does. While one
// write is under way the next batch gathers.
func (e *Enforcer) serveQueue() {
	var waiting []*request
	for {
		// Whoever is ready to ask does so first: twice as many share one write.
		runtime.Gosched()
		waiting = e.gather(waiting[:0])
		if len(waiting) > 0 {
			e.writeGrants(waiting)
			continue
		}
		if e.retire() {
			return
		}
	}
}

// retire ends the service of the queue, and tells whether it may: whoever came just
// before has seen it served, and is left to this one or to the next.
func (e *Enforcer) retire() bool {
	e.writing.Store(false)
	return len(e.queue) == 0 || !e.writing.CompareAndSwap(false, true)
}

// gather appends what waits.
func (e *Enforcer) gather(waiting []*request) []*request {
	for len(waiting) < writersMax {
		select {
		case r := <-e.queue:
			waiting = append(waiting, r)
		default:
			return waiting
		}
	}
	return waiting
}

// writeGrants opens what requests ask for, and tells each what became of it.
func (e *Enforcer) writeGrants(requests []*request) {
	e.grants.plan.Lock()
	e.batch.begin(e.instant())
	for _, r := range requests {
		for i := range r.grants {
			if r.left.Load() || r.err != nil {
				break
			}
			r.err = e.stageGrant(r, &r.grants[i])
		}
	}
	e.writeBatch(&e.batch)
	for _, r := range requests {
		for _, i := range r.waits {
			if err := e.batch.sets[i].err; err != nil && r.err == nil {
				r.err = fmt.Errorf("grant %s to pod %s: %w", r.grants[0].Name, r.grants[0].Pod, err)
			}
		}
	}
	e.grants.plan.Unlock()
	last := len(requests) - 1 // of those that are told by a call
	for last >= 0 && requests[last].then == nil {
		last--
	}
	for i, r := range requests {
		e.finish(r, i < last)
	}
}

// stageGrant takes one grant into the batch.
func (e *Enforcer) stageGrant(r *request, g *policy.Grant) error {
	p := e.grants.of(g.Pod)
	if p == nil || !p.allows(g) {
		return fmt.Errorf("grant %s to pod %s on %s: no policy allows it any more", g.Name, g.Pod, g.Ports)
	}
	sets := (*p.sets.Load())[g.Ports]
	why := reason{g.Name, e.moment(g.Deadline), originOf(g.By)}
	for _, a := range g.Addrs {
		s := sets[slot(xtables.FamilyOf(a))]
		if s == nil {
			return fmt.Errorf("grant %s to pod %s on %s: the pod has no such set", g.Name, g.Pod, g.Ports)
		}
		if i := e.batch.stage(s, a, why); i >= 0 && !slices.Contains(r.waits, i) {
			r.waits = append(r.waits, i)
		}
	}
	return nil
}

// allows tells whether a view of the pod allows a grant. The one that decided it
// need not be asked again; any other must be: the caller's may be older.
func (p *podGrants) allows(g *policy.Grant) bool {
	if g.View != nil && slices.Contains(p.views, g.View) {
		return true
	}
	return p.allowsName(g.Name, g.Ports)
}

// allowsName tells whether a view of the pod allows a name on ports. The caller holds plan.
func (p *podGrants) allowsName(name fqdn.Name, ports policy.PortSet) bool {
	return slices.ContainsFunc(p.views, func(v *policy.View) bool { return viewAllows(v, name, ports) })
}

func viewAllows(v *policy.View, name fqdn.Name, ports policy.PortSet) bool {
	return v != nil && slices.ContainsFunc(v.Decide(name).Matches, func(m *policy.Match) bool { return !m.Audit && m.Ports == ports })
}
