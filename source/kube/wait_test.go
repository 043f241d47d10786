package kube

import (
	"context"
	"testing"
	"time"

	"k8s.io/utils/clock"
)

// handClock has timers that fire when the test says so. Each After is reported to the
// test before it returns.
type handClock struct {
	clock.Clock
	asked chan handTimer
}

type handTimer struct {
	d time.Duration
	c chan time.Time
}

func (c *handClock) Now() time.Time { return at(0) }

func (c *handClock) After(d time.Duration) <-chan time.Time {
	timer := handTimer{d, make(chan time.Time, 1)}
	c.asked <- timer
	return timer.c
}

// waiting is a source that waits for the end of a burst.
type waiting struct {
	t      *testing.T
	source *Source
	clock  *handClock
	over   chan bool
	cancel context.CancelFunc
}

func startWaiting(t *testing.T) *waiting {
	w := &waiting{t: t, clock: &handClock{asked: make(chan handTimer)}, over: make(chan bool, 1)}
	w.source = &Source{clock: w.clock, events: make(chan struct{}, 1), others: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	t.Cleanup(cancel)
	go func() { w.over <- w.source.wait(ctx) }()
	return w
}

func (w *waiting) ended() bool {
	w.t.Helper()
	select {
	case ok := <-w.over:
		return ok
	case <-time.After(time.Minute):
		w.t.Fatal("the wait goes on")
		return false
	}
}

// TestBurst: each change begins the quiet time anew, and only the last one's end counts.
func TestBurst(t *testing.T) {
	w := startWaiting(t)
	w.source.note()
	first, most := <-w.clock.asked, <-w.clock.asked
	if first.d != QuietDelay || most.d != MostDelay {
		t.Fatalf("timers of %v and %v", first.d, most.d)
	}
	w.source.note()
	second := <-w.clock.asked
	first.c <- at(1)
	w.source.note()
	third := <-w.clock.asked // asked for only if the first quiet time did not end the wait
	second.c <- at(1)
	if len(w.over) > 0 {
		t.Fatal("an old quiet time ended the wait")
	}
	third.c <- at(2)
	if !w.ended() {
		t.Error("no State after the burst")
	}
}

func TestBurstWithoutEnd(t *testing.T) {
	w := startWaiting(t)
	w.source.note()
	<-w.clock.asked
	most := <-w.clock.asked
	for range 10 {
		w.source.note()
		<-w.clock.asked
	}
	most.c <- at(1)
	if !w.ended() {
		t.Error("no State although the burst is long")
	}
}

// TestOthersProlongNothing: changes of pods of other nodes have one time of their own,
// and the quiet time of this node's goes on beside it.
func TestOthersProlongNothing(t *testing.T) {
	w := startWaiting(t)
	w.source.noteRemote()
	others := <-w.clock.asked
	if others.d != RemoteDelay {
		t.Fatalf("a timer of %v", others.d)
	}
	w.source.noteRemote()
	w.source.note()
	quiet, most := <-w.clock.asked, <-w.clock.asked
	if quiet.d != QuietDelay || most.d != MostDelay {
		t.Fatalf("timers of %v and %v", quiet.d, most.d)
	}
	w.source.noteRemote() // asks for no timer, or nobody would receive the next one's
	w.source.note()
	again := <-w.clock.asked
	if again.d != QuietDelay {
		t.Fatalf("a timer of %v", again.d)
	}
	if len(w.over) > 0 {
		t.Fatal("a State before any time is over")
	}
	again.c <- at(1)
	if !w.ended() {
		t.Error("no State after the quiet time")
	}
}

func TestOthersAlone(t *testing.T) {
	w := startWaiting(t)
	w.source.noteRemote()
	(<-w.clock.asked).c <- at(1)
	if !w.ended() {
		t.Error("no State for pods of other nodes")
	}
}

func TestWaitEndsWithContext(t *testing.T) {
	w := startWaiting(t)
	w.cancel()
	if w.ended() {
		t.Error("a State after the end")
	}
}

// TestNotesAreOne: whoever changes something never waits for the source.
func TestNotesAreOne(t *testing.T) {
	s := &Source{events: make(chan struct{}, 1)}
	s.others = make(chan struct{}, 1)
	for range 100 {
		s.note()
		s.noteRemote()
	}
	if len(s.events) != 1 || len(s.others) != 1 {
		t.Errorf("%d and %d notes are pending", len(s.events), len(s.others))
	}
}
