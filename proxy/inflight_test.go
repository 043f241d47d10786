package proxy

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/wire"
)

// gate is a resolver that waits until it is opened.
type gate struct {
	mu    sync.Mutex
	calls int
	enter chan wire.Query
	open  chan struct{}
	panic atomic.Bool // of the next
	err   error
}

func (g *gate) resolve(a wire.Query) (found, error) {
	g.mu.Lock()
	g.calls++
	g.mu.Unlock()
	g.enter <- a
	<-g.open
	if g.panic.Swap(false) {
		panic("a fault")
	}
	return found{msg: new(dns.Msg)}, g.err
}

func newGate() *gate { return &gate{enter: make(chan wire.Query, 10), open: make(chan struct{})} }

func TestOneIdenticalQueryIsAskedOnce(t *testing.T) {
	g, stats := newGate(), &counters{}
	f := newInflight(g, stats)
	a := askFor(t, "www.example.org")
	other := a
	other.Flags |= wire.DO

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

// TestFaultOfTheFirstFreesTheOthers: they ask themselves.
func TestFaultOfTheFirstFreesTheOthers(t *testing.T) {
	g, stats := newGate(), &counters{}
	g.panic.Store(true)
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
	if err := <-second; err != nil || g.calls != 2 || len(f.calls) != 0 {
		t.Errorf("the second got %v; %d calls, %d left", err, g.calls, len(f.calls))
	}
}

// TestWaitersOfAFlight: whatever it ends with, those on the long way get it too and
// ask nobody themselves.
func TestWaitersOfAFlight(t *testing.T) {
	g := newGate()
	f := newInflight(g, &counters{})
	x := &express{query: askFor(t, "www.example.org")}
	for _, want := range []outcome{{found: found{msg: new(dns.Msg)}}, {err: errors.New("lost")}} {
		before := f.stats.Coalesced.Load()
		fl, first, ok := f.board(x)
		if !first || !ok || fl.lead != x {
			t.Fatalf("%v %v", first, ok)
		}
		if fl2, first, ok := f.board(&express{query: x.query}); fl2 != fl || first || !ok {
			t.Fatalf("the second does not board: %v %v", first, ok)
		}
		const waiters = 5
		var wg sync.WaitGroup
		for range waiters {
			wg.Go(func() {
				if got, err := f.resolve(x.query); !errors.Is(err, want.err) || got != want.found {
					t.Errorf("%v, %v", got, err)
				}
			})
		}
		until(t, "the waiters", func() bool { return f.stats.Coalesced.Load()-before == waiters+1 })
		if riders := f.land(fl, func() (found, error) { return want.found, want.err }); len(riders) != 2 {
			t.Errorf("%d riders", len(riders))
		}
		wg.Wait()
		if g.calls != 0 || len(f.calls) != 0 {
			t.Errorf("asked %d times, %d calls left", g.calls, len(f.calls))
		}
	}
}

// TestAnswerIsReadWithoutTheLock: while a call's waiters get its answer, which may
// be a message to unpack, other calls begin.
func TestAnswerIsReadWithoutTheLock(t *testing.T) {
	f := newInflight(newGate(), &counters{})
	a := askFor(t, "www.example.org")
	fl, _, _ := f.board(&express{query: a})
	c, first := f.join(a)
	if first {
		t.Fatal("the call is not under way")
	}
	free := false
	f.land(fl, func() (found, error) {
		if free = f.mu.TryLock(); free {
			f.mu.Unlock()
		}
		return found{msg: new(dns.Msg)}, nil
	})
	<-c.done
	if c.answer.msg == nil || c.err != nil {
		t.Errorf("the waiter got %+v, %v", c.answer, c.err)
	}
	if !free {
		t.Error("the answer is read under the lock of all calls")
	}
}
