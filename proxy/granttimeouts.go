package proxy

import (
	"sync"
	"time"
)

// grantTick is half of how late the end of a wait for the kernel may be noticed.
const grantTick = 20 * time.Millisecond

// grantTimeouts end the waits for a kernel that does not answer: a timer for each would
// cost more than the wait does.
type grantTimeouts struct {
	mu      sync.Mutex
	queue   []grantWait   // in the order in which they began
	begin   int           // of queue
	ticked  time.Duration // the last tick, on the server's clock
	running bool
}

type grantWait struct {
	q     *query
	epoch uint64
	at    time.Duration // on the server's clock
}

// over tells whether the wait has ended.
func (w grantWait) over() bool { return w.q.wait.epoch.Load() != w.epoch }

// add notes that a query waits for the kernel until the moment at.
func (t *grantTimeouts) add(s *Server, q *query, epoch uint64, at time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.begin < len(t.queue) && t.queue[t.begin].over() {
		t.queue[t.begin] = grantWait{}
		t.begin++
	}
	if t.begin == len(t.queue) {
		t.queue, t.begin = t.queue[:0], 0
	} else if t.begin > len(t.queue)/2 && t.begin > 64 {
		t.queue, t.begin = append(t.queue[:0], t.queue[t.begin:]...), 0
	}
	t.queue = append(t.queue, grantWait{q, epoch, at})
	if !t.running {
		t.running = true
		time.AfterFunc(grantTick, func() { t.tick(s) })
	}
}

// tick gives up what waits for too long, and comes again while anything waits. What was
// late at the last tick is late: where the process did not run for a while, what the
// kernel acknowledged meanwhile comes together with the tick.
func (t *grantTimeouts) tick(s *Server) {
	now := s.elapsed()
	t.mu.Lock()
	var late []grantWait
	for ; t.begin < len(t.queue); t.begin++ {
		w := t.queue[t.begin]
		if !w.over() {
			if w.at > t.ticked {
				break
			}
			late = append(late, w)
		}
		t.queue[t.begin] = grantWait{}
	}
	t.ticked, t.running = now, t.begin < len(t.queue)
	if t.running {
		time.AfterFunc(grantTick, func() { t.tick(s) })
	} else {
		t.queue, t.begin = t.queue[:0], 0
	}
	t.mu.Unlock()
	for _, w := range late {
		if w.q.resume(w.epoch) {
			w.q.protect(func() { w.q.notGranted("it did not acknowledge in time") })
		}
	}
}
