package proxy

import (
	"sync"
	"time"
)

// overdueTick is how late the end of a wait for the kernel may be noticed.
const overdueTick = 20 * time.Millisecond

// overdue ends the waits for a kernel that does not answer: a timer for each would
// cost more than the wait does.
type overdue struct {
	mu      sync.Mutex
	queue   []wait // in the order in which they began
	begin   int    // of queue
	running bool
}

type wait struct {
	x    *express
	life uint64
	at   time.Duration // on the server's clock
}

// over tells whether the wait has ended.
func (w wait) over() bool { return w.x.life.Load() != w.life }

// add notes that a query waits for the kernel until the moment at.
func (o *overdue) add(s *Server, x *express, at time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.begin < len(o.queue) && o.queue[o.begin].over() {
		o.queue[o.begin] = wait{}
		o.begin++
	}
	if o.begin == len(o.queue) {
		o.queue, o.begin = o.queue[:0], 0
	} else if o.begin > len(o.queue)/2 && o.begin > 64 {
		o.queue, o.begin = append(o.queue[:0], o.queue[o.begin:]...), 0
	}
	o.queue = append(o.queue, wait{x, x.life.Load(), at})
	if !o.running {
		o.running = true
		time.AfterFunc(overdueTick, func() { o.tick(s) })
	}
}

// tick gives up what waits for too long, and comes again while anything waits.
func (o *overdue) tick(s *Server) {
	now := s.elapsed()
	o.mu.Lock()
	var late []wait
	for ; o.begin < len(o.queue); o.begin++ {
		w := o.queue[o.begin]
		if !w.over() {
			if w.at > now {
				break
			}
			late = append(late, w)
		}
		o.queue[o.begin] = wait{}
	}
	o.running = o.begin < len(o.queue)
	if o.running {
		time.AfterFunc(overdueTick, func() { o.tick(s) })
	} else {
		o.queue, o.begin = o.queue[:0], 0
	}
	o.mu.Unlock()
	for _, w := range late {
		if w.x.life.CompareAndSwap(w.life, w.life+1) {
			w.x.fail("it did not acknowledge in time")
		}
	}
}
