package rollout

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/namegate/namegate/agent/health"
	"github.com/namegate/namegate/agent/metrics"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/fqdn"
)

// retryAfter is how long a snapshot that the kernel refused waits for its next try. Each further failure
// of the same state doubles it, up to retryMost.
const (
	retryAfter = time.Second
	retryMost  = 10 * time.Second
)

// reopenAfter is how long rules stay closed for a pod that has no room for their addresses, before
// they are tried again.
const reopenAfter = time.Minute

// warmTogether is how long the first of several pods whose names are resolved waits for
// the next ones, so that they become isolated by one commit.
const warmTogether = 20 * time.Millisecond

// Options are the parts that a Rollout calls. All fields but Amend are required.
type Options struct {
	Stages Stages
	// Amend completes the input of each compile just before it; nil: it is complete.
	Amend  func(*compile.Input)
	Health *health.Health
	Timing *metrics.Timing
	Log    *slog.Logger
}

// Rollout brings states into force.
type Rollout struct {
	o        Options
	warmUps  *warmUps
	compiler *compile.Compiler
	next     chan State
	again    chan struct{} // the configuration has changed
	amended  chan struct{} // Amend may complete the input otherwise
	first    chan struct{} // closed when the first snapshot is in force

	// The following are Run's alone.
	began     time.Time        // of the first warm-up
	prepared  *policy.Snapshot // the last that was made ready
	published *policy.Snapshot // by which the proxy decides
	logged    *policy.Snapshot // the last applied snapshot
	reported  map[string]bool  // the last snapshot's problems

	mu     sync.Mutex
	status Status
}

// New returns a Rollout to which nothing was offered.
func New(o Options) *Rollout {
	return &Rollout{o: o, warmUps: newWarmUps(o.Stages.Warm), compiler: compile.New(), next: make(chan State, 1), again: make(chan struct{}, 1), amended: make(chan struct{}, 1), first: make(chan struct{})}
}

// Offer replaces a state that still waits.
func (r *Rollout) Offer(s State) {
	r.o.Health.Synced()
	select {
	case <-r.next:
	default:
	}
	r.next <- s
}

// Reconfigure rolls the last state out again, by the Corefile of now.
func (r *Rollout) Reconfigure() { note(r.again) }

// Recompile compiles the last state again, completed by Amend anew, and rolls it out.
func (r *Rollout) Recompile() { note(r.amended) }

// note leaves a note in c, which has room for one.
func note(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// First is closed when the first snapshot is in force.
func (r *Rollout) First() <-chan struct{} { return r.first }

// Status returns how far the roll-outs have come.
func (r *Rollout) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

// Run rolls states out until ctx ends.
func (r *Rollout) Run(ctx context.Context) {
	var retry, warmed, reopen <-chan time.Time
	var snap *policy.Snapshot
	pause := retryAfter
	for {
		tries := false // the last state once more
		step := func(ctx context.Context) error { return r.sync(ctx, snap) }
		select {
		case <-ctx.Done():
			return
		case s := <-r.next:
			snap = r.compile(s)
		case <-r.amended:
			if snap == nil {
				continue
			}
			snap = r.compile(r.status.State)
		case <-r.again:
			if snap == nil {
				continue
			}
		case <-retry:
			tries = true
		case <-reopen:
		case <-r.warmUps.ended:
			switch {
			case retry != nil || r.prepared == r.status.InForce: // the retry commits it too, or it is done
				continue
			case len(r.warmUps.waiting(r.prepared)) > 0:
				if warmed == nil {
					warmed = time.After(warmTogether)
				}
				continue
			}
			step = r.commit
		case <-warmed:
			step = r.commit
		}
		if retry, warmed = nil, nil; !tries {
			pause = retryAfter
		}
		if err := r.apply(ctx, step); err != nil && ctx.Err() == nil {
			r.o.Log.Error("new policies are not in force; the previous ones stay in force; trying again", "after", pause, "error", err)
			retry, pause = time.After(pause), min(2*pause, retryMost)
		}
		if reopen = nil; r.prepared != snap {
			reopen = time.After(reopenAfter)
		}
	}
}

// compile returns the snapshot of a state.
func (r *Rollout) compile(s State) (snap *policy.Snapshot) {
	if r.o.Amend != nil {
		r.o.Amend(&s.Input)
	}
	r.o.Timing.Compile(func() { snap = r.compiler.Compile(s.Input) })
	r.mu.Lock()
	r.status.State, r.status.Problems = s, slices.Concat(s.Problems, snap.Problems)
	r.mu.Unlock()
	return snap
}

// report logs the problems that the last snapshot had not.
func (r *Rollout) report(problems []policy.Problem) {
	reported := r.reported
	r.reported = map[string]bool{}
	for _, p := range problems {
		key := strings.Join([]string{p.Object, p.Reason, p.Path, p.Message}, "\x00")
		r.reported[key] = true
		if !reported[key] {
			level := slog.LevelWarn
			if p.Opens {
				level = slog.LevelError
			}
			r.o.Log.Log(context.Background(), level, "part of the input cannot work", "object", p.Object, "reason", p.Reason, "path", p.Path, "message", p.Message)
		}
	}
}

// apply takes a step and notes how it ended.
func (r *Rollout) apply(ctx context.Context, step func(context.Context) error) error {
	err := r.o.Timing.Apply(func() error { return step(ctx) })
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Failing = ""
	if err != nil {
		r.status.Failing = err.Error()
	}
	r.o.Health.RolledOut(r.status.InForce != nil, r.status.Failing)
	return err
}

// sync takes all stages: sets and chains are ready before the proxy decides by the
// snapshot, a pod's exact names are resolved before it is isolated and intercepted, and
// nothing is denied before that. Resolvers that cannot be served delay no pod's
// isolation: the last ones are intercepted meanwhile.
func (r *Rollout) sync(ctx context.Context, snap *policy.Snapshot) error {
	unserved := r.o.Stages.Attach(ctx, r.status.State)
	snap, err := r.o.Stages.Prepare(ctx, snap)
	r.prepare(snap)
	if err != nil {
		return errors.Join(unserved, err)
	}
	if !snap.SameButPeers(r.published) || !slices.Equal(snap.PeerSets, r.published.PeerSets) {
		r.o.Stages.Publish(snap)
		r.published = snap
	}
	r.warm(ctx, snap)
	return errors.Join(unserved, r.commit(ctx))
}

// prepare notes and reports what was made ready, with the problems that this showed.
func (r *Rollout) prepare(snap *policy.Snapshot) {
	r.prepared = snap
	r.mu.Lock()
	r.status.Problems = slices.Concat(r.status.State.Problems, snap.Problems)
	r.mu.Unlock()
	r.report(snap.Problems)
}

// warm has the exact names resolved that are new to pods in a snapshot. The names of a
// pod that is isolated already delay nothing, and neither do those that are only denied,
// which come after the others.
func (r *Rollout) warm(ctx context.Context, snap *policy.Snapshot) {
	if r.status.InForce == nil && r.began.IsZero() {
		r.began = time.Now()
	}
	until := time.Now().Add(WarmTime)
	if r.status.InForce == nil {
		until = r.began.Add(WarmTime) // all wait for the first, and not longer for later ones
	}
	r.warmUps.sweep(func(p policy.PodRef) bool { return snap.Isolates(p) && !r.status.InForce.Isolates(p) })
	for _, v := range snap.Views {
		before := r.status.InForce.ViewOf(v.Pod.PodRef)
		if !v.InForce() || before == v {
			continue
		}
		switch opened, denied := v.ExactNames(); {
		case before != nil && before.InForce():
			wasOpened, wasDenied := before.ExactNames()
			if names := without(without(slices.Concat(opened, denied), wasOpened), wasDenied); len(names) > 0 {
				r.warmUps.background(ctx, v, names, until)
			}
		case len(opened) > 0:
			r.warmUps.begin(ctx, v, opened, denied, until)
		case len(denied) > 0: // what denies is not to wait
			r.warmUps.background(ctx, v, denied, until)
		}
	}
}

// without removes the names that are in known, which is sorted.
func without(names, known []fqdn.Name) []fqdn.Name {
	return slices.DeleteFunc(names, func(n fqdn.Name) bool {
		_, there := slices.BinarySearch(known, n)
		return there
	})
}

// commit applies the prepared snapshot, except for pods whose names are not resolved yet.
// The first snapshot waits for all names, because the rules of the previous agent are in
// force until then.
func (r *Rollout) commit(ctx context.Context) error {
	snap := r.prepared
	waiting := r.warmUps.waiting(snap)
	if r.status.InForce == nil && len(waiting) > 0 {
		return nil
	}
	part := snap.Defer(r.status.InForce, waiting)
	nothing := part != snap && r.status.Failing == "" && part.SameButPeers(r.status.InForce) && slices.Equal(part.PeerSets, r.status.InForce.PeerSets)
	if nothing { // for any pod that does not wait for names
		return r.o.Stages.Settle(ctx)
	}
	inForce, err := r.o.Stages.Commit(ctx, waiting)
	if err != nil {
		return err
	}
	if r.logged != snap && !snap.SameButPeers(r.logged) { // peers change all day
		r.o.Log.Info("policies in force", "snapshot", snap.Number, "selected", len(snap.Views), "waiting", len(waiting), "problems", len(r.status.Problems))
	}
	r.logged = snap
	r.mu.Lock()
	if r.status.InForce == nil {
		close(r.first)
	}
	r.status.InForce, r.status.Applied, r.status.Waiting = inForce, r.status.State, 0
	for _, v := range snap.Views {
		if v.InForce() && !inForce.Isolates(v.Pod.PodRef) {
			r.status.Waiting++
		}
	}
	r.mu.Unlock()
	return r.o.Stages.Settle(ctx)
}
