package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/fqdn"
)

// retryAfter is how long a snapshot that the kernel refused waits for its next try.
const retryAfter = time.Second

// warmTogether is how long the first of several pods whose names are resolved waits for
// the next ones, so that they become isolated by one commit.
const warmTogether = 20 * time.Millisecond

// stages are the steps of a roll-out in their order.
type stages interface {
	// attach serves on the addresses that a state's cluster needs.
	attach(ctx context.Context, s state) error
	// prepare makes the kernel ready for a snapshot.
	prepare(ctx context.Context, s *policy.Snapshot) error
	// publish makes the proxy decide by it.
	publish(s *policy.Snapshot)
	// warm grants names of a pod by the published snapshot, until ctx ends at the latest.
	warm(ctx context.Context, v *policy.View, names []fqdn.Name)
	// commit brings what is prepared into force, pods that wait excepted, and returns the
	// snapshot that is in force then.
	commit(ctx context.Context, waiting map[policy.PodRef]bool) (*policy.Snapshot, error)
	// settle brings what attach prepared into force.
	settle(ctx context.Context) error
}

// rollout brings states of the source into force, one after another; of states
// that arrive during one only the last counts. A pod that becomes isolated is left out
// until its exact names are resolved. No other pod, and no later state, waits for that.
type rollout struct {
	agent    *agent
	stages   stages
	warmUps  *warmUps
	compiler *compile.Compiler
	next     chan state
	again    chan struct{} // the configuration has changed
	timing   *timing

	// These are run's alone.
	began     time.Time        // the first names were asked for
	published *policy.Snapshot // what the proxy decides by
	logged    *policy.Snapshot // the last one that came into force
	told      map[string]bool  // the last snapshot's problems

	mu       sync.Mutex
	state    state
	problems []policy.Problem
	inForce  *policy.Snapshot // nil until the first
	waiting  int              // pods that are not isolated until their names are open
	failing  string
	first    chan struct{} // closed when the first snapshot is in force
}

func newRollout(a *agent) *rollout {
	return newRolloutOf(a, &agentStages{a})
}

func newRolloutOf(a *agent, s stages) *rollout {
	return &rollout{agent: a, stages: s, warmUps: newWarmUps(s.warm), compiler: compile.New(), next: make(chan state, 1), again: make(chan struct{}, 1), first: make(chan struct{}), timing: newTiming(time.Now)}
}

// offer replaces a state that still waits.
func (r *rollout) offer(s state) {
	r.agent.health.set(func(h *health) { h.synced = true })
	select {
	case <-r.next:
	default:
	}
	r.next <- s
}

// reconfigure has the last state looked at again, by the Corefile of now.
func (r *rollout) reconfigure() {
	select {
	case r.again <- struct{}{}:
	default:
	}
}

func (r *rollout) run(ctx context.Context) {
	var retry, warmed <-chan time.Time
	var snap *policy.Snapshot
	for {
		step := r.bring
		select {
		case <-ctx.Done():
			return
		case s := <-r.next:
			r.timing.compile(func() { snap = r.compiler.Compile(s.input) })
			r.mu.Lock()
			r.state, r.problems = s, append(s.problems[:len(s.problems):len(s.problems)], snap.Problems...)
			r.mu.Unlock()
			r.tell(snap.Problems)
		case <-r.again:
			if snap == nil {
				continue
			}
		case <-retry:
		case <-r.warmUps.ended:
			switch {
			case retry != nil || snap == r.inForce: // the retry commits it too, or it is done
				continue
			case len(r.warmUps.waiting(snap)) > 0:
				if warmed == nil {
					warmed = time.After(warmTogether)
				}
				continue
			}
			step = r.commit
		case <-warmed:
			step = r.commit
		}
		retry, warmed = nil, nil
		if err := r.apply(ctx, snap, step); err != nil && ctx.Err() == nil {
			r.agent.log.Error("policies are not in force; the last ones are; trying again", "after", retryAfter, "error", err)
			retry = time.After(retryAfter)
		}
	}
}

// tell logs the problems that the last snapshot had not.
func (r *rollout) tell(problems []policy.Problem) {
	told := r.told
	r.told = map[string]bool{}
	for _, p := range problems {
		key := strings.Join([]string{p.Object, p.Reason, p.Path, p.Message}, "\x00")
		r.told[key] = true
		if !told[key] {
			r.agent.log.Warn("part of the input cannot work", "object", p.Object, "reason", p.Reason, "path", p.Path, "message", p.Message)
		}
	}
}

// apply takes a step of a snapshot, and notes how it ended.
func (r *rollout) apply(ctx context.Context, snap *policy.Snapshot, step func(context.Context, *policy.Snapshot) error) error {
	err := r.timing.apply(func() error { return step(ctx, snap) })
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failing = ""
	if err != nil {
		r.failing = err.Error()
	}
	r.agent.health.set(func(h *health) { h.failing, h.inForce = r.failing, h.inForce || r.inForce != nil })
	return err
}

// bring is the order of the design: sets and chains are ready before the proxy
// decides by the snapshot, a pod's exact names are resolved before it is isolated and
// intercepted, and nothing is denied before that. Resolvers that cannot be served hold
// up no pod's isolation: the last ones are intercepted meanwhile.
func (r *rollout) bring(ctx context.Context, snap *policy.Snapshot) error {
	unserved := r.stages.attach(ctx, r.state)
	if err := r.stages.prepare(ctx, snap); err != nil {
		return errors.Join(unserved, err)
	}
	if !snap.SameButPeers(r.published) { // else what it has prepared would be for nothing
		r.stages.publish(snap)
		r.published = snap
	}
	r.warm(ctx, snap)
	return errors.Join(unserved, r.commit(ctx, snap))
}

// warm has the exact names resolved that a snapshot brings to pods. Those of a pod that
// is isolated already delay nothing.
func (r *rollout) warm(ctx context.Context, snap *policy.Snapshot) {
	if r.inForce == nil && r.began.IsZero() {
		r.began = time.Now()
	}
	until := time.Now().Add(warmTime)
	if r.inForce == nil {
		until = r.began.Add(warmTime) // all wait for the first, and not longer for later ones
	}
	r.warmUps.sweep(func(p policy.PodRef) bool { return snap.Isolates(p) && !r.inForce.Isolates(p) })
	for _, v := range snap.Views {
		switch before := r.inForce.ViewOf(v.Pod.PodRef); {
		case !v.Enforced || before == v:
		case before != nil && before.Enforced:
			if names := without(v.ExactNames(), before.ExactNames()); len(names) > 0 {
				r.warmUps.background(ctx, v, names, until)
			}
		case len(v.ExactNames()) > 0:
			r.warmUps.begin(ctx, v, until)
		}
	}
}

// without returns those of names that are not among known; both are sorted.
func without(names, known []fqdn.Name) []fqdn.Name {
	return slices.DeleteFunc(slices.Clone(names), func(n fqdn.Name) bool {
		_, there := slices.BinarySearch(known, n)
		return there
	})
}

// commit brings what is prepared into force, but for pods whose names are not resolved.
// Everything waits for the first snapshot's: where an agent was before, its rules are in
// force until then.
func (r *rollout) commit(ctx context.Context, snap *policy.Snapshot) error {
	waiting := r.warmUps.waiting(snap)
	if r.inForce == nil && len(waiting) > 0 {
		return nil
	}
	part := snap.Defer(r.inForce, waiting)
	nothing := part != snap && r.failing == "" && part.SameButPeers(r.inForce) && slices.Equal(part.PeerSets, r.inForce.PeerSets)
	if nothing { // for anybody but those that wait
		return r.stages.settle(ctx)
	}
	inForce, err := r.stages.commit(ctx, waiting)
	if err != nil {
		return err
	}
	if r.logged != snap && !snap.SameButPeers(r.logged) { // peers change all day
		r.agent.log.Info("policies in force", "snapshot", snap.Number, "selected", len(snap.Views), "waiting", len(waiting), "problems", len(r.problems))
	}
	r.logged = snap
	r.mu.Lock()
	if r.inForce == nil {
		close(r.first)
	}
	r.inForce, r.waiting = inForce, 0
	for _, v := range snap.Views {
		if v.Enforced && !inForce.Isolates(v.Pod.PodRef) {
			r.waiting++
		}
	}
	r.mu.Unlock()
	return r.stages.settle(ctx)
}

// snapshot returns the one in force, nil before the first.
func (r *rollout) snapshot() *policy.Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inForce
}

// latest returns the state of the source that came last.
func (r *rollout) latest() state {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

// views returns those in force.
func (r *rollout) views() []*policy.View {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inForce == nil {
		return nil
	}
	return r.inForce.Views
}

// number returns the number of the snapshot in force, 0 before the first. The
// caller holds mu.
func (r *rollout) number() uint64 {
	if r.inForce == nil {
		return 0
	}
	return r.inForce.Number
}
