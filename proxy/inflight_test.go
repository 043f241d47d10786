package proxy

import (
	"errors"
	"sync"
	"testing"

	"github.com/miekg/dns"
)

// gate is a resolver that waits until it is opened.
type gate struct {
	mu    sync.Mutex
	calls int
	enter chan ask
	open  chan struct{}
	panic bool
	err   error
}

func (g *gate) resolve(a ask) (found, error) {
	g.mu.Lock()
	g.calls++
	g.mu.Unlock()
	g.enter <- a
	<-g.open
	if g.panic {
		panic("a fault")
	}
	return found{msg: new(dns.Msg)}, g.err
}

func newGate() *gate { return &gate{enter: make(chan ask, 10), open: make(chan struct{})} }

func TestOneIdenticalQueryIsAskedOnce(t *testing.T) {
	g, stats := newGate(), &counters{}
	f := newInflight(g, stats)
	a := askFor(t, "www.example.org")
	other := a
	other.dnssec = true

	const askers = 8
	var wg sync.WaitGroup
	answers := make([]found, askers)
	wg.Go(func() { answers[0], _ = f.resolve(a) })
	<-g.enter
	for i := 1; i < askers; i++ {
		wg.Go(func() { answers[i], _ = f.resolve(a) })
	}
	for stats.Coalesced.Load() < askers-1 {
	}
	wg.Go(func() { _, _ = f.resolve(other) })
	<-g.enter // another question does not wait for the first
	close(g.open)
	wg.Wait()
	for i := range answers {
		if answers[i].msg == nil || answers[i].msg != answers[0].msg {
			t.Errorf("asker %d got %v", i, answers[i].msg)
		}
	}
	if g.calls != 2 || len(f.calls) != 0 {
		t.Errorf("%d calls, %d left", g.calls, len(f.calls))
	}
	if _, err := f.resolve(a); err != nil || g.calls != 3 {
		t.Errorf("asked later: %d calls, %v", g.calls, err)
	}
}

func TestErrorIsSharedAndNotKept(t *testing.T) {
	g := newGate()
	g.err = errors.New("lost")
	close(g.open)
	f := newInflight(g, &counters{})
	for range 2 {
		if _, err := f.resolve(askFor(t, "www.example.org")); !errors.Is(err, g.err) {
			t.Errorf("error %v", err)
		}
	}
	if g.calls != 2 {
		t.Errorf("%d calls", g.calls)
	}
}

func TestFaultOfTheFirstFreesTheOthers(t *testing.T) {
	g, stats := newGate(), &counters{}
	g.panic = true
	f := newInflight(g, stats)
	a := askFor(t, "www.example.org")
	first := make(chan any)
	go func() {
		defer func() { first <- recover() }()
		_, _ = f.resolve(a)
	}()
	<-g.enter
	second := make(chan error)
	go func() { _, err := f.resolve(a); second <- err }()
	for stats.Coalesced.Load() == 0 {
	}
	close(g.open)
	if <-first == nil {
		t.Error("the fault was swallowed")
	}
	if err := <-second; !errors.Is(err, errAbandoned) {
		t.Errorf("the second got %v", err)
	}
}

// TestWaitersOfAFlightThatLeadsNowhereAskThemselves: and once.
func TestWaitersOfAFlightThatLeadsNowhereAskThemselves(t *testing.T) {
	g := newGate()
	close(g.open)
	f := newInflight(g, &counters{})
	x := &express{ask: askFor(t, "www.example.org")}
	fl, first, ok := f.board(x)
	if !first || !ok || fl.lead != x {
		t.Fatalf("%v %v", first, ok)
	}
	if fl2, first, ok := f.board(&express{ask: x.ask}); fl2 != fl || first || !ok {
		t.Fatalf("the second does not board: %v %v", first, ok)
	}
	const waiters = 5
	var wg sync.WaitGroup
	for range waiters {
		wg.Go(func() {
			if got, err := f.resolve(x.ask); err != nil || got.msg == nil {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
	until(t, "the waiters", func() bool { return f.stats.Coalesced.Load() == waiters+1 })
	if riders := f.land(fl, func() (found, error) { return found{}, errNotPlain }); len(riders) != 2 {
		t.Errorf("%d riders", len(riders))
	}
	wg.Wait()
	if g.calls == 0 || g.calls > waiters || len(f.calls) != 0 {
		t.Errorf("asked %d times, %d calls left", g.calls, len(f.calls))
	}
	g.err = errors.New("lost")
	if _, first, ok := f.board(x); !first || !ok {
		t.Error("nobody boards after it has landed")
	}
}
