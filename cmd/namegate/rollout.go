package main

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/namegate/namegate/policy"
)

// retryAfter is how long a snapshot that the kernel refused waits for its next try.
const retryAfter = time.Second

// rollout brings states of the source into force, one after another; of states
// that arrive during one only the last counts.
type rollout struct {
	agent    *agent
	compiler *policy.Compiler
	next     chan state
	again    chan struct{} // the configuration has changed
	timing   *timing

	// These are run's alone.
	published *policy.Snapshot // what the proxy decides by
	told      map[string]bool  // the last snapshot's problems

	mu       sync.Mutex
	state    state
	problems []policy.Problem
	inForce  *policy.Snapshot // nil until the first
	failing  string
	first    chan struct{} // closed when the first snapshot is in force
}

func newRollout(a *agent) *rollout {
	return &rollout{agent: a, compiler: policy.NewCompiler(), next: make(chan state, 1), again: make(chan struct{}, 1), first: make(chan struct{}), timing: newTiming(time.Now)}
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
	var retry <-chan time.Time
	var snap *policy.Snapshot
	for {
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
		}
		retry = nil
		if err := r.apply(ctx, snap); err != nil && ctx.Err() == nil {
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

// apply is the order of the design: sets and chains are ready before the proxy
// decides by the snapshot, exact names are resolved before pods are cut from what
// they had open, and nothing is denied or intercepted before that.
func (r *rollout) apply(ctx context.Context, snap *policy.Snapshot) error {
	err := r.timing.apply(func() error { return r.bring(ctx, snap) })
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failing = ""
	if err != nil {
		r.failing = err.Error()
	}
	r.agent.health.set(func(h *health) { h.failing, h.inForce = r.failing, h.inForce || err == nil })
	if err != nil {
		return err
	}
	if r.inForce == nil {
		close(r.first)
	}
	if r.inForce != snap && !snap.SameButPeers(r.inForce) { // peers change all day
		r.agent.log.Info("policies in force", "snapshot", snap.Number, "selected", len(snap.Views), "problems", len(r.problems))
	}
	r.inForce = snap
	return nil
}

func (r *rollout) bring(ctx context.Context, snap *policy.Snapshot) error {
	a := r.agent
	a.nodes.learn(r.state)
	if err := a.network.attach(ctx, r.state.cluster); err != nil {
		return err
	}
	if err := a.enforce.Prepare(ctx, snap); err != nil {
		return err
	}
	if !snap.SameButPeers(r.published) { // else what it has prepared would be for nothing
		a.proxy.Publish(snap)
		r.published = snap
	}
	a.warm(ctx, r.fresh(snap))
	if err := a.enforce.Commit(ctx); err != nil {
		return err
	}
	return a.network.settle(ctx)
}

// fresh returns the views of a snapshot that are not in force as they are.
func (r *rollout) fresh(snap *policy.Snapshot) []*policy.View {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*policy.View
	for _, v := range snap.Views {
		if r.inForce.ViewOf(v.Pod.PodRef) != v {
			out = append(out, v)
		}
	}
	return out
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
