package enforcer

import (
	"container/heap"
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/namegate/namegate/enforcer/ipset"
)

// due is one grant's place in the queue. A grant that was extended meanwhile is
// put back when its turn comes; one whose queued says otherwise has another place.
type due struct {
	at   time.Time
	set  *grantSet
	addr netip.Addr
}

type dueHeap []due

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *dueHeap) Push(x any) { *h = append(*h, x.(due)) }

// Pop implements heap.Interface.
func (h *dueHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = due{}
	*h = old[:len(old)-1]
	return last
}

// dueQueue is the grants by deadline.
type dueQueue struct {
	mu sync.Mutex
	h  dueHeap
}

func (q *dueQueue) push(d due) {
	q.mu.Lock()
	defer q.mu.Unlock()
	heap.Push(&q.h, d)
}

// take returns the grants whose deadline is not after now.
func (q *dueQueue) take(now time.Time) []due {
	q.mu.Lock()
	defer q.mu.Unlock()
	var out []due
	for len(q.h) > 0 && !q.h[0].at.After(now) {
		out = append(out, heap.Pop(&q.h).(due))
	}
	return out
}

// expiryTick is how late a grant may end: deadlines are looked at this often.
const expiryTick = 100 * time.Millisecond

// expiryRetry is how long a grant waits that the kernel refused to take out.
const expiryRetry = time.Second

// RunExpiry ends grants at their deadlines until ctx ends.
func (e *Enforcer) RunExpiry(ctx context.Context) {
	tick := time.NewTicker(expiryTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := e.Expire(); err != nil {
				e.log.Error("grants past their deadline stay until the kernel ends them", "error", err)
			}
		}
	}
}

// Expire takes grants whose deadline has passed out of the kernel. What they
// admitted goes on. One that the kernel refuses to take out is tried again after
// a second, and ends by the kernel's own timeout at the latest.
func (e *Enforcer) Expire() error {
	now := e.now()
	bySet := map[*grantSet][]due{}
	for _, d := range e.grants.due.take(now) {
		bySet[d.set] = append(bySet[d.set], d)
	}
	var failed error
	for s, dues := range bySet {
		if err := e.expire(s, dues, now); err != nil && !ipset.IsNotFound(err) {
			failed = err
		}
	}
	return failed
}

func (e *Enforcer) expire(s *grantSet, dues []due, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var over []netip.Addr
	for _, d := range dues {
		g := s.entries[d.addr]
		if g == nil || !g.queued.Equal(d.at) {
			continue
		}
		if g.queued = (time.Time{}); g.until().After(now) {
			e.enqueue(s, d.addr, g)
			continue
		}
		over = append(over, d.addr)
	}
	err := e.end(s, over)
	if err != nil {
		for _, a := range over {
			s.entries[a].queued = now.Add(expiryRetry)
			e.grants.due.push(due{now.Add(expiryRetry), s, a})
		}
	}
	return err
}
