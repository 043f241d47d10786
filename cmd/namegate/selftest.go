package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/namegate/namegate/enforcer"
	"github.com/namegate/namegate/kernel/inject"
	"github.com/namegate/namegate/policy"
)

const (
	// testRest is between two pods' tests: an agent with many pods takes its time.
	testRest = 100 * time.Millisecond
	// testAgain is when a path that worked is tried again, testFailed one that did not.
	testAgain  = 5 * time.Minute
	testFailed = 5 * time.Second
)

// pathTests tries, for each selected pod, whether a query from its interface
// reaches the proxy: at the start, for each new pod, and again now and then.
type pathTests struct {
	test  func(context.Context, policy.PodRef) (enforcer.Path, error)
	views func() []*policy.View
	now   func() time.Time
	log   *slog.Logger

	mu    sync.Mutex
	paths map[policy.PodRef]tested
}

// tested is the last test of a pod.
type tested struct {
	path enforcer.Path
	next time.Time
	bad  int // how often in a row it failed the same way
}

func newPathTests(test func(context.Context, policy.PodRef) (enforcer.Path, error), views func() []*policy.View, log *slog.Logger) *pathTests {
	return &pathTests{test: test, views: views, now: time.Now, log: log, paths: map[policy.PodRef]tested{}}
}

// run tests until ctx ends.
func (p *pathTests) run(ctx context.Context) {
	_ = every(ctx, testRest, func() { p.one(ctx) })
}

// one tests the first pod whose time has come.
func (p *pathTests) one(ctx context.Context) {
	pod, due := p.due()
	if !due {
		return
	}
	path, err := p.test(ctx, pod)
	if ctx.Err() != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.paths[pod]
	t := tested{path: path, next: p.now().Add(testAgain)}
	if path == enforcer.PathUntested && err == nil {
		t.next = p.now().Add(testFailed) // its home may not be known yet
	}
	if path == enforcer.PathBlocked || path == enforcer.PathUnseen {
		t.next = p.now().Add(testFailed)
		if t.bad = 1; last.path == path {
			t.bad = last.bad + 1
		}
	}
	if t.bad == confirmed {
		p.log.Warn("queries of a selected pod do not reach the agent", "pod", pod, "path", path)
	}
	if err != nil && last.next.IsZero() {
		p.log.Warn("the path of a selected pod is not tested", "pod", pod, "error", err)
	}
	p.paths[pod] = t
}

// confirmed is how many tests in a row must fail before it is said: one packet
// may be lost.
const confirmed = 2

// due picks the selected pod that waits longest for its test and forgets the
// pods that are not selected any more.
func (p *pathTests) due() (pod policy.PodRef, due bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	selected := map[policy.PodRef]bool{}
	first := p.now()
	for _, v := range p.views() {
		if !v.Enforced || len(v.Pod.IPs) == 0 {
			continue
		}
		selected[v.Pod.PodRef] = true
		if next := p.paths[v.Pod.PodRef].next; next.Before(first) || !due && next.Equal(first) {
			pod, due, first = v.Pod.PodRef, true, next
		}
	}
	for ref := range p.paths {
		if !selected[ref] {
			delete(p.paths, ref)
		}
	}
	return pod, due
}

// failed returns the paths that do not work, by pod.
func (p *pathTests) failed() map[policy.PodRef]enforcer.Path {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[policy.PodRef]enforcer.Path{}
	for ref, t := range p.paths {
		if t.bad >= confirmed {
			out[ref] = t.path
		}
	}
	return out
}

// testPath tries one pod. What it needs of the kernel is made for the first.
func (a *agent) testPath(ctx context.Context, pod policy.PodRef) (enforcer.Path, error) {
	if a.injector == nil {
		in, err := inject.Open()
		if err != nil {
			return enforcer.PathUntested, err
		}
		a.injector = in
	}
	return a.enforce.TestPath(ctx, pod, a.injector, a.proxy.ExpectProbe)
}
