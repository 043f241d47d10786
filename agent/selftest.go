package agent

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/namegate/namegate/enforcer"
	"github.com/namegate/namegate/kernel/inject"
	"github.com/namegate/namegate/policy"
)

const (
	// testPause is between two pods' tests.
	testPause = 100 * time.Millisecond
	// testPeriod is when a path that worked is tested again, testRetry when any other is.
	testPeriod = 5 * time.Minute
	testRetry  = 5 * time.Second
)

// selfTest tests, for each selected pod, whether a query from its interface reaches the
// proxy: at the start, for each new pod, and periodically.
type selfTest struct {
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
	bad  int // failures of the same kind in a row
}

func newSelfTest(test func(context.Context, policy.PodRef) (enforcer.Path, error), views func() []*policy.View, log *slog.Logger) *selfTest {
	return &selfTest{test: test, views: views, now: time.Now, log: log, paths: map[policy.PodRef]tested{}}
}

// run tests until ctx ends.
func (s *selfTest) run(ctx context.Context) {
	every(ctx, testPause, func() { s.one(ctx) })
}

// one tests the first pod whose time has come.
func (s *selfTest) one(ctx context.Context) {
	pod, due := s.due()
	if !due {
		return
	}
	path, err := s.test(ctx, pod)
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.paths[pod]
	t := tested{path: path, next: s.now().Add(testPeriod)}
	if path == enforcer.PathUntested && err == nil {
		t.next = s.now().Add(testRetry) // its home may not be known yet
	}
	if path == enforcer.PathBlocked || path == enforcer.PathUnseen {
		t.next = s.now().Add(testRetry)
		if t.bad = 1; last.path == path {
			t.bad = last.bad + 1
		}
	}
	if t.bad == confirmed {
		s.log.Warn("queries of a selected pod do not reach the agent", "pod", pod, "path", path)
	}
	if err != nil && last.next.IsZero() {
		s.log.Warn("the path of a selected pod is not tested", "pod", pod, "error", err)
	}
	s.paths[pod] = t
}

// confirmed is how many tests in a row must fail before it is reported: one packet may be
// lost.
const confirmed = 2

// due picks the selected pod that waits longest for its test and forgets the
// pods that are not selected any more.
func (s *selfTest) due() (pod policy.PodRef, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	selected := map[policy.PodRef]bool{}
	first := s.now()
	for _, v := range s.views() {
		if !v.InForce() || len(v.Pod.IPs) == 0 {
			continue
		}
		selected[v.Pod.PodRef] = true
		if next := s.paths[v.Pod.PodRef].next; next.Before(first) || !due && next.Equal(first) {
			pod, due, first = v.Pod.PodRef, true, next
		}
	}
	for ref := range s.paths {
		if !selected[ref] {
			delete(s.paths, ref)
		}
	}
	return pod, due
}

// failed returns the paths that do not work, by pod.
func (s *selfTest) failed() map[policy.PodRef]enforcer.Path {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[policy.PodRef]enforcer.Path{}
	for ref, t := range s.paths {
		if t.bad >= confirmed {
			out[ref] = t.path
		}
	}
	return out
}

// testPath tests one pod.
func (a *agent) testPath(ctx context.Context, pod policy.PodRef) (enforcer.Path, error) {
	return a.enforce.TestPath(ctx, pod, a.injector.Send, a.proxy.ExpectProbe)
}

// injector makes packets come in by interfaces. The first one opens it.
type injector struct {
	mu     sync.Mutex
	in     *inject.Kernel
	closed bool
}

// Send is inject.Kernel's.
func (i *injector) Send(iface string, packet []byte) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.in == nil {
		if i.closed {
			return errors.New("the agent ends")
		}
		in, err := inject.Open()
		if err != nil {
			return err
		}
		i.in = in
	}
	return i.in.Send(iface, packet)
}

// Close removes the kernel objects.
func (i *injector) Close() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed = true; i.in == nil {
		return nil
	}
	return i.in.Close()
}
