package proxy

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
)

// waitingFor returns so many queries that wait for the kernel.
func waitingFor(n int) []*query {
	out := make([]*query, n)
	for i := range out {
		out[i] = new(query)
		out[i].wait.epoch.Store(2*uint64(i) + 1)
	}
	return out
}

// quietClock is a server whose clock a test moves; its ticks are the test's.
func quietClock(t *testing.T) (*cacheLab, *grantTimeouts) {
	l := newCacheLab(t, nil)
	o := &l.s.timeouts
	o.running = true // no timer of its own
	return l, o
}

func TestTimeoutsDropEndedQueries(t *testing.T) {
	l, o := quietClock(t)
	room := 0
	for i, x := range waitingFor(100_000) {
		o.add(l.s, x, x.wait.epoch.Load(), time.Duration(i))
		x.wait.epoch.Add(1)
		room = max(room, cap(o.queue))
	}
	if room > 64 {
		t.Errorf("room for %d, and at most one waited at a time", room)
	}
}

// TestHangingQueryKeepsFewEntries: behind it what has ended stays until it is given up,
// and no longer.
func TestHangingQueryKeepsFewEntries(t *testing.T) {
	l, o := quietClock(t)
	stuck := waitingFor(1)[0]
	o.add(l.s, stuck, stuck.wait.epoch.Load(), time.Hour)
	for _, x := range waitingFor(1000) {
		o.add(l.s, x, x.wait.epoch.Load(), time.Hour)
		x.wait.epoch.Add(1)
	}
	stuck.wait.epoch.Add(1)
	last := waitingFor(1)[0]
	o.add(l.s, last, last.wait.epoch.Load(), time.Hour)
	if n := len(o.queue) - o.begin; n != 1 {
		t.Errorf("%d wait", n)
	}
	for i, w := range o.queue[:o.begin] {
		if w.q != nil {
			t.Fatalf("place %d holds on to what has ended", i)
		}
	}
	last.wait.epoch.Add(1)
	o.tick(l.s)
	if o.running || len(o.queue) != 0 {
		t.Errorf("it ticks on: %+v", o)
	}
}

// TestTickEndsLateGrants: that and nothing else, and once. What is acknowledged after a
// time in which the process did not run is not late, whatever runs first then.
func TestTickEndsLateGrants(t *testing.T) { synctest.Test(t, testTickEndsLateGrants) }

func testTickEndsLateGrants(t *testing.T) {
	l, o := quietClock(t)
	given := 0
	all := waitingFor(10)
	over := make([]chan struct{}, len(all))
	for i, q := range all {
		h := &inHand{over: make(chan struct{})}
		q.s, q.setup, q.to, over[i] = l.s, l.s.setup.Load(), h, h.over
		q.keep(packed(t, newQuery("www.example.org", dns.TypeA)))
		q.client = l.who("10.1.0.2")
		o.add(l.s, q, q.wait.epoch.Load(), time.Duration(i+1)*time.Second)
	}
	l.pass(6 * time.Second)
	o.tick(l.s)
	all[3].wait.epoch.Add(1) // it is acknowledged
	o.tick(l.s)
	for i, q := range all {
		late := i <= 5 && i != 3
		if late {
			<-over[i]
			given++
		}
		if ended := q.wait.epoch.Load() != 2*uint64(i)+1; ended != (late || i == 3) {
			t.Errorf("query %d: over %v", i, ended)
		}
		if i > 5 {
			break // the others wait on
		}
		if q.Granted(nil, false); late && q.wait.epoch.Load() != 2*uint64(i)+2 {
			t.Errorf("query %d went on after it was given up", i)
		}
	}
	if s := l.s.Stats(); s.GrantFailures != uint64(given) || given != 5 {
		t.Errorf("%d given up, %+v", given, s)
	}
}
