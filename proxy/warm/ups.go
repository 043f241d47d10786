package warm

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

const (
	// AtOnce bounds the questions in flight of one pod's warm-up. The bound is per pod, so that names
	// without an answer do not delay other pods.
	AtOnce = 16
	// Again is how long after a failure, or after the answer that a name has no address, warm-ups do not
	// ask again.
	Again = 5 * time.Second
	// Pause is how long after a warm-up the names that failed are asked for again. The pause doubles with
	// each failure, up to maxPause.
	Pause    = time.Second
	maxPause = time.Minute
)

// Ups are the warm-ups of all pods. Their methods may be called from any goroutine.
type Ups struct {
	p      *Proxy
	mu     sync.Mutex
	cold   map[policy.PodRef]*cold
	closed bool
}

// NewUps returns warm-ups by the proxy.
func NewUps(p *Proxy) *Ups { return &Ups{p: p, cold: map[policy.PodRef]*cold{}} }

// cold are the names of a pod whose last warm-up failed. They are asked for together when the pause is
// over.
type cold struct {
	names map[fqdn.Name]bool
	pause time.Duration
	stop  func() bool
}

// Warm is WarmNames for all exact names of views.
func (u *Ups) Warm(ctx context.Context, views []*policy.View) error {
	failed := make([]error, len(views))
	var pods sync.WaitGroup
	for i, v := range views {
		pods.Go(func() { failed[i] = u.WarmNames(ctx, v, slices.Concat(v.ExactNames())) })
	}
	pods.Wait()
	return errors.Join(failed...)
}

// WarmNames queries names of a view, A and AAAA, and grants the answers, as if the pod
// had asked. So a pod that got its answers elsewhere, before it was selected or while no
// agent served, keeps the names it uses. It returns when all are granted, with the
// failures joined, or when ctx has ended; queries in flight then end by themselves. A
// failed name is queried again later, as long as the pod's view has it. A name is not
// queried again while the answer to an earlier warm-up is valid.
func (u *Ups) WarmNames(ctx context.Context, v *policy.View, names []fqdn.Name) error {
	return u.warm(ctx, v, names, 0)
}

// warm is WarmNames; waited is the pause since the names failed, 0 for the first warm-up.
func (u *Ups) warm(ctx context.Context, v *policy.View, names []fqdn.Name, waited time.Duration) (failed error) {
	if !v.InForce() {
		return nil
	}
	pause := max(Pause, min(2*waited, maxPause))
	w := &up{p: u.p, ctx: ctx, view: v, snap: u.p.Snapshot(), names: names, results: make(chan result, 2*len(names))}
	if waited > 0 {
		w.early = max(0, Again-waited)
	}
	open := map[fqdn.Name]int{} // questions without a good answer
	for _, n := range names {
		open[n] += 2
	}
	defer func() { u.retry(v.Pod.PodRef, open, pause) }()
	for range min(AtOnce, 2*len(names)) {
		w.next()
	}
	for range 2 * len(names) {
		select {
		case r := <-w.results:
			if failed = errors.Join(failed, r.err); r.err != nil {
				continue
			}
			if open[r.name]--; open[r.name] == 0 {
				delete(open, r.name)
			}
		case <-ctx.Done():
			return errors.Join(failed, ctx.Err())
		}
	}
	return failed
}

// retry has names of a pod asked for again after the pause, or sooner if others of its are.
func (u *Ups) retry(pod policy.PodRef, names map[fqdn.Name]int, pause time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed || len(names) == 0 {
		return
	}
	last, c := u.cold[pod], &cold{names: map[fqdn.Name]bool{}, pause: pause}
	if last != nil && last.pause <= pause {
		c = last
	} else if last != nil {
		last.stop()
		maps.Copy(c.names, last.names)
	}
	for n := range names {
		c.names[n] = true
	}
	if c != last {
		c.stop = u.p.After(pause, func() { u.again(pod, c) })
		u.cold[pod] = c
	}
}

// again asks for the cold names that the pod's view still has.
func (u *Ups) again(pod policy.PodRef, c *cold) {
	u.mu.Lock()
	due := u.cold[pod] == c
	if due {
		delete(u.cold, pod)
	}
	u.mu.Unlock()
	v := u.p.Snapshot().ViewOf(pod)
	if !due || v == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxPause)
	defer cancel()
	names := slices.DeleteFunc(slices.Concat(v.ExactNames()), func(n fqdn.Name) bool { return !c.names[n] })
	_ = u.warm(ctx, v, names, c.pause) // the first failure was reported
}

// Stop forgets all names that failed, for good.
func (u *Ups) Stop() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	for _, c := range u.cold {
		c.stop()
	}
	clear(u.cold)
}

// up is one warm-up of a pod.
type up struct {
	p       *Proxy
	ctx     context.Context
	view    *policy.View
	snap    *policy.Snapshot
	names   []fqdn.Name
	early   time.Duration // of Question: a retry asks again for failures that are older than its pause
	asked   atomic.Int64
	results chan result // has room for all
}

// result is how one question for a name ended.
type result struct {
	name fqdn.Name
	err  error
}

// next asks the next question, if there is one.
func (w *up) next() {
	i := int(w.asked.Add(1)) - 1
	if i >= 2*len(w.names) || w.ctx.Err() != nil {
		return
	}
	n := w.names[i/2]
	w.p.Ask(Question{View: w.view, Snap: w.snap, Name: n, Type: [2]uint16{dns.TypeA, dns.TypeAAAA}[i%2], Early: w.early}, func(r Result) {
		var err error
		if r.Verdict == audit.Failed {
			err = errors.New("resolve " + n.String() + " for " + subject(w.view) + ": " + r.Error)
		}
		w.results <- result{n, err}
		w.p.Do(w.next)
	})
}

// subject names the subject of a view for people.
func subject(v *policy.View) string {
	if v.Node != nil {
		return v.Pod.String()
	}
	return "pod " + v.Pod.String()
}
