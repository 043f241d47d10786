package enforcer

import (
	"context"
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/namegate/namegate/enforcer/dataplane/xtables"
	"github.com/namegate/namegate/enforcer/grants"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// twoClocks makes the time that the runtime reads when the clock tells wall and the
// kernel's own has run for so long: nothing but such a time tells the two apart.
func twoClocks(t testing.TB, wall time.Time, ran time.Duration) time.Time {
	t.Helper()
	out := time.Now()
	want := out.Add(wall.Sub(out.Round(0))) // has both, and the first is right
	*(*int64)(unsafe.Add(unsafe.Pointer(&want), unsafe.Sizeof(uint64(0)))) = int64(ran)
	again := want.Add(time.Minute)
	if !want.Round(0).Equal(wall) || again.Sub(want) != time.Minute {
		t.Fatalf("%v is not %v", want, wall)
	}
	return want
}

// steps is a node whose clock is set while agents run on it.
type steps struct {
	*world
	pod  policy.Pod
	wall time.Time
	ran  time.Duration
}

func newSteps(t *testing.T) *steps {
	s := &steps{world: newNode(t), wall: time.Unix(1_700_000_000, 0), ran: 5000 * time.Second}
	s.pod = pod("web", "10.1.0.5 2001:db8:1::5", "allow")
	s.show()
	s.next()
	return s
}

// show makes the clock tell what it is to tell.
func (s *steps) show() { s.clock.Set(twoClocks(s.t, s.wall, s.ran)) }

// pass lets time pass, and the agent end what is due.
func (s *steps) pass(d time.Duration) {
	s.t.Helper()
	s.wall, s.ran = s.wall.Add(d), s.ran+d
	s.show()
	fatal.If(s.t, s.e.grants.Expire())
}

// step sets the clock.
func (s *steps) step(d time.Duration) {
	s.wall = s.wall.Add(d)
	s.show()
}

// next starts the next agent.
func (s *steps) next() {
	s.t.Helper()
	s.boot()
	s.e.own(grants.NewClock(s.clock.Now, s.ran))
	if _, err := s.e.Start(context.Background()); err != nil {
		s.t.Fatal(err)
	}
	s.apply([]policy.Pod{s.pod}, pol("allow", "tcp/443 www.example.org *.example.net"))
}

var someSteps = []time.Duration{time.Hour, -time.Hour, 24 * time.Hour, -24 * time.Hour, 90 * time.Second, -90 * time.Second}

// Whatever the clock is set to, and however often an agent is followed by another in
// between, a grant ends at its deadline: not earlier, and a second later at most.
func TestAClockThatIsSetMovesNoDeadline(t *testing.T) {
	t.Parallel()
	for _, d := range someSteps {
		for _, order := range []string{"step", "step restart", "restart step", "step restart step restart", "restart restart step"} {
			t.Run(fmt.Sprint(d, " ", order), func(t *testing.T) {
				s := newSteps(t)
				s.answer(s.pod, "www.example.org", 60, "192.0.2.1")  // 120 s with the grace
				s.answer(s.pod, "a.example.net", 600, "2001:db8::1") // 660 s
				s.pass(30 * time.Second)
				s.do(order, d)
				s.pass(89 * time.Second)
				s.open(true, "192.0.2.1")
				s.do(order, d)
				s.pass(2 * time.Second)
				s.open(false, "192.0.2.1")
				s.pass(538 * time.Second)
				s.open(true, "2001:db8::1")
				s.pass(2 * time.Second)
				s.open(false, "2001:db8::1")
			})
		}
	}
}

func (s *steps) do(order string, d time.Duration) {
	s.t.Helper()
	for rest := order; rest != ""; {
		var what string
		_, _ = fmt.Sscan(rest, &what)
		rest = rest[min(len(what)+1, len(rest)):]
		if what == "step" {
			s.step(d)
		} else {
			s.next()
		}
	}
}

func (s *steps) open(want bool, a string) {
	s.t.Helper()
	diff.Equal(s.t, want, s.left(s.pod, https, a) > 0, a, "open", "at", s.ran, "which the clock calls", s.wall)
}

// What an agent finds open it may count on: where its clock was set back, the kernel
// must not end what an answer was told to last.
func TestACoveredAnswerIsOpenAfterAStep(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	s.cfg.Hold = 10 * time.Second
	s.next()
	s.answer(s.pod, "www.example.org", 60, "192.0.2.1")
	s.step(-time.Hour)
	s.next()
	for range 20 {
		s.pass(30 * time.Second)
		s.answer(s.pod, "www.example.org", 60, "192.0.2.1")
		if left := s.left(s.pod, https, "192.0.2.1"); left < 120*time.Second {
			t.Fatalf("an answer was given for 120 s, the kernel ends it in %v", left)
		}
	}
}

// No entry that the next agent reads is taken for one that outlives its timeout in the kernel.
func TestNoDeadlineOutlivesTheKernelsTimeout(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	fatal.If(t, s.sets.Add(xtables.GrantSetName(s.pod.PodRef, https, iptables.IPv4), ipset.Entry{
		Addr: addr("192.0.2.2"), Timeout: 100 * time.Second, Comment: fmt.Sprintf("www.example.org until=%d shop/allow www.example.org", int64((s.ran + time.Hour).Seconds()))}))
	s.next()
	s.open(true, "192.0.2.2")
	s.answer(s.pod, "www.example.org", 60, "192.0.2.2")
	if left := s.left(s.pod, https, "192.0.2.2"); left < 120*time.Second || left > 121*time.Second+DefaultHold {
		t.Errorf("an answer was given for 120 s, the kernel ends it in %v", left)
	}
}

// What the agent says of itself follows the heartbeat, not the clock.
func TestInterceptionChangesIgnoreTheClock(t *testing.T) {
	t.Parallel()
	for _, d := range someSteps {
		s := newSteps(t)
		if s.e.Status().Intercepting {
			t.Fatal("intercepting before the first heartbeat")
		}
		fatal.If(t, s.e.intercept.Beat(context.Background(), func(context.Context) error { return nil }))
		s.step(d)
		if !s.e.Status().Intercepting {
			t.Errorf("after a step of %v interception is said to be off", d)
		}
		s.pass(10 * time.Second)
		if s.e.Status().Intercepting {
			t.Errorf("after a step of %v interception is said to be on, 10 s after the last heartbeat", d)
		}
	}
}

func TestRunExpiryEndsGrants(t *testing.T) {
	t.Parallel()
	w, p := web(t)
	w.answer(p, "www.example.org", 60, "192.0.2.1")
	w.clock.Pass(time.Hour)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() { w.e.RunExpiry(ctx); close(over) }()
	fatal.Await(t, "the end of the grant", func() bool { return w.e.Status().Grants == 0 })
	cancel()
	<-over
}
