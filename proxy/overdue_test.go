package proxy

import (
	"net"
	"testing"
	"time"
)

// waitingFor returns so many queries that wait for the kernel.
func waitingFor(n int) []*express {
	out := make([]*express, n)
	for i := range out {
		out[i] = new(express)
		out[i].life.Store(2*uint64(i) + 1)
	}
	return out
}

// unbound is a socket from which replies leave for nowhere.
func unbound(t *testing.T) *net.UDPConn {
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(loopback))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// quietClock is a server whose clock a test moves; its ticks are the test's.
func quietClock(t *testing.T) (*cacheLab, *overdue) {
	l := newCacheLab(t, nil)
	o := &l.s.overdue
	o.running = true // no timer of its own
	return l, o
}

func TestOverdueForgetsWhatHasEnded(t *testing.T) {
	l, o := quietClock(t)
	room := 0
	for i, x := range waitingFor(100_000) {
		o.add(l.s, x, time.Duration(i))
		x.life.Add(1)
		room = max(room, cap(o.queue))
	}
	if room > 64 {
		t.Errorf("room for %d, and at most one waited at a time", room)
	}
}

// TestOneThatHangsKeepsFew: behind it what has ended stays until it is given up,
// and no longer.
func TestOneThatHangsKeepsFew(t *testing.T) {
	l, o := quietClock(t)
	stuck := waitingFor(1)[0]
	o.add(l.s, stuck, time.Hour)
	for _, x := range waitingFor(1000) {
		o.add(l.s, x, time.Hour)
		x.life.Add(1)
	}
	stuck.life.Add(1)
	last := waitingFor(1)[0]
	o.add(l.s, last, time.Hour)
	if n := len(o.queue) - o.begin; n != 1 {
		t.Errorf("%d wait", n)
	}
	for i, w := range o.queue[:o.begin] {
		if w.x != nil {
			t.Fatalf("place %d holds on to what has ended", i)
		}
	}
	last.life.Add(1)
	o.tick(l.s)
	if o.running || len(o.queue) != 0 {
		t.Errorf("it ticks on: %+v", o)
	}
}

// TestTickGivesUpWhatIsLate: that and nothing else, and once.
func TestTickGivesUpWhatIsLate(t *testing.T) {
	l, o := quietClock(t)
	given := 0
	all := waitingFor(10)
	for i, x := range all {
		x.l = &listener{s: l.s}
		x.l.work.Add(1)
		x.l.udp = unbound(t)
		x.view.Packet = packed(t, newQuery("www.example.org", 1))
		x.slot, _ = l.s.admit(asker{})
		o.add(l.s, x, time.Duration(i)*time.Second)
	}
	all[3].life.Add(1) // it has ended in time
	l.pass(5 * time.Second)
	o.tick(l.s)
	for i, x := range all {
		late := i <= 5 && i != 3
		if late {
			x.l.work.Wait()
			given++
		}
		if over := x.life.Load() != 2*uint64(i)+1; over != (late || i == 3) {
			t.Errorf("query %d: over %v", i, over)
		}
		if i > 5 {
			break // the others wait on
		}
		if x.acknowledged(nil); late && x.life.Load() != 2*uint64(i)+2 {
			t.Errorf("query %d went on after it was given up", i)
		}
	}
	if s := l.s.Stats(); s.GrantFailures != uint64(given) || given != 5 {
		t.Errorf("%d given up, %+v", given, s)
	}
}
