package rollout

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// WarmTime is how long exact names are resolved before a pod is isolated all the same.
const WarmTime = 2 * time.Second

// warmUps resolve exact names for pods, for each by itself.
type warmUps struct {
	warm  func(ctx context.Context, v *policy.View, names []fqdn.Name)
	ended chan struct{} // a pod waits no longer

	mu   sync.Mutex
	pods map[policy.PodRef]*warmUp
}

// warmUp is the warm-up of a pod that is not isolated yet.
type warmUp struct {
	view *policy.View
	// until is when the pod is isolated at the latest. Another view does not move it: a
	// pod must not stay open by changing its labels.
	until   time.Time
	running int
}

func newWarmUps(warm func(context.Context, *policy.View, []fqdn.Name)) *warmUps {
	return &warmUps{warm: warm, ended: make(chan struct{}, 1), pods: map[policy.PodRef]*warmUp{}}
}

// begin resolves names of a pod, which waits for them, unless that has begun, and then others,
// for which it does not wait.
func (w *warmUps) begin(ctx context.Context, v *policy.View, names, others []fqdn.Name, until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	u := w.pods[v.Pod.PodRef]
	if u == nil || time.Now().After(u.until.Add(WarmTime)) { // it is of an earlier isolation
		u = &warmUp{until: until}
		w.pods[v.Pod.PodRef] = u
	}
	if u.view == v {
		return
	}
	u.view = v
	u.running++
	go func() {
		w.resolve(ctx, v, names, u.until)
		w.mu.Lock()
		u.running--
		w.mu.Unlock()
		note(w.ended)
		if len(others) > 0 {
			w.resolve(ctx, v, others, time.Now().Add(WarmTime))
		}
	}()
}

// background resolves names for which no pod waits.
func (w *warmUps) background(ctx context.Context, v *policy.View, names []fqdn.Name, until time.Time) {
	go w.resolve(ctx, v, names, until)
}

func (w *warmUps) resolve(ctx context.Context, v *policy.View, names []fqdn.Name, until time.Time) {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	w.warm(ctx, v, names)
}

// sweep forgets pods that need no warm-up any more. A pod whose time is not over is kept:
// if it is isolated again soon it waits no longer than it would have.
func (w *warmUps) sweep(needs func(policy.PodRef) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.pods, func(p policy.PodRef, u *warmUp) bool { return !needs(p) && time.Now().After(u.until) })
}

// waiting returns the pods that a snapshot isolates and whose names are not resolved yet.
func (w *warmUps) waiting(s *policy.Snapshot) map[policy.PodRef]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[policy.PodRef]bool{}
	for p, u := range w.pods {
		if u.running > 0 && s.Isolates(p) {
			out[p] = true
		}
	}
	return out
}
