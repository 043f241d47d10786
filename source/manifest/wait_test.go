package manifest

import (
	"context"
	"testing"
	"time"

	"k8s.io/utils/clock"
)

// handClock has timers that fire when the test says so. Each After is told to the
// test before it returns.
type handClock struct {
	clock.Clock
	asked chan *handTimer
}

type handTimer struct {
	d time.Duration
	c chan time.Time
}

func (c *handClock) Now() time.Time { return at(0) }

func (c *handClock) After(d time.Duration) <-chan time.Time {
	timer := &handTimer{d, make(chan time.Time, 1)}
	c.asked <- timer
	return timer.c
}

// handWatch has changes when the test says so.
type handWatch chan string

func (w handWatch) paths() <-chan string { return w }
func (w handWatch) renew()               {}
func (w handWatch) close()               {}

type waiting struct {
	t     *testing.T
	clock *handClock
	watch handWatch
	ended chan error
	ctx   context.CancelFunc
}

func startWaiting(t *testing.T) (*waiting, *handTimer) {
	t.Helper()
	w := &waiting{t: t, clock: &handClock{asked: make(chan *handTimer)}, watch: make(handWatch), ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	w.ctx = cancel
	s := &Source{dir: "/d", clock: w.clock}
	go func() { w.ended <- s.wait(ctx, w.watch) }()
	rescan := <-w.clock.asked
	if rescan.d != RescanPeriod {
		t.Fatalf("the first timer is of %v", rescan.d)
	}
	return w, rescan
}

func (w *waiting) still() {
	w.t.Helper()
	select {
	case err := <-w.ended:
		w.t.Fatalf("the wait has ended: %v", err)
	default:
	}
}

func (w *waiting) over() error {
	w.t.Helper()
	select {
	case err := <-w.ended:
		return err
	case <-time.After(time.Minute):
		w.t.Fatal("the wait goes on")
		return nil
	}
}

// TestBurst: each change begins the quiet time anew, and only the last one's end counts.
func TestBurst(t *testing.T) {
	w, _ := startWaiting(t)
	w.watch <- "/d/a.yaml"
	first := <-w.clock.asked
	most := <-w.clock.asked
	if first.d != QuietDelay || most.d != MostDelay {
		t.Fatalf("timers of %v and %v", first.d, most.d)
	}
	w.watch <- "/d/b.yaml"
	second := <-w.clock.asked
	first.c <- at(1)
	w.watch <- "/d/c.yaml" // taken only if the first quiet time did not end the wait
	third := <-w.clock.asked
	second.c <- at(1)
	w.still()
	third.c <- at(2)
	if err := w.over(); err != nil {
		t.Error(err)
	}
}

func TestBurstWithoutEnd(t *testing.T) {
	w, _ := startWaiting(t)
	w.watch <- "/d" // the folder itself
	<-w.clock.asked
	most := <-w.clock.asked
	for range 10 {
		w.watch <- ""
		<-w.clock.asked
	}
	most.c <- at(1)
	if err := w.over(); err != nil {
		t.Error(err)
	}
}

func TestNeighboursAreNoChange(t *testing.T) {
	w, rescan := startWaiting(t)
	w.watch <- "/other"
	w.watch <- "/d2/a.yaml"
	w.watch <- "/d2" // taken only if the others asked for no timer
	w.still()
	rescan.c <- at(30)
	if err := w.over(); err != nil {
		t.Error(err)
	}
}

func TestWaitEnds(t *testing.T) {
	w, _ := startWaiting(t)
	w.ctx()
	if err := w.over(); err != nil {
		t.Errorf("at the end of the context: %v", err)
	}
	w, _ = startWaiting(t)
	close(w.watch)
	if err := w.over(); err == nil {
		t.Error("no error at the end of the watch")
	}
}
