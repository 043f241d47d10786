package enforcer

import (
	"context"
	"net/netip"
	"time"

	"github.com/namegate/namegate/kernel/ipset"
)

// due is one grant's place in the queue. A grant that was extended meanwhile is
// put back when its turn comes; one whose queued says otherwise has another place.
type due struct {
	at   moment
	set  *grantSet
	addr netip.Addr
}

// dueQueue is the grants by deadline: a heap, each before the two at twice its place.
type dueQueue struct{ h []due }

func (q *dueQueue) push(d due) {
	q.h = append(q.h, d)
	i := len(q.h) - 1
	for ; i > 0 && d.at < q.h[(i-1)/2].at; i = (i - 1) / 2 {
		q.h[i] = q.h[(i-1)/2]
	}
	q.h[i] = d
}

func (q *dueQueue) pop() due {
	first, last := q.h[0], q.h[len(q.h)-1]
	q.h[len(q.h)-1] = due{}
	q.h = q.h[:len(q.h)-1]
	i := 0
	for next := 1; next < len(q.h); next = 2*i + 1 {
		if next+1 < len(q.h) && q.h[next+1].at < q.h[next].at {
			next++
		}
		if last.at <= q.h[next].at {
			break
		}
		q.h[i] = q.h[next]
		i = next
	}
	if len(q.h) > 0 {
		q.h[i] = last
	}
	return first
}

// take returns at most n grants whose deadline is not after now.
func (q *dueQueue) take(now moment, n int) []due {
	var out []due
	for len(q.h) > 0 && q.h[0].at <= now && len(out) < n {
		out = append(out, q.pop())
	}
	return out
}

// expiryPart is how many grants end at a time, about a millisecond's work: new
// grants wait for no more.
const expiryPart = 1024

// expiryTick is how late a grant may end: deadlines are looked at this often.
const expiryTick = 100 * time.Millisecond

// expiryRetry is how long a grant waits that the kernel refused to take out.
const expiryRetry = time.Second

// RunExpiry ends grants at their deadlines until ctx ends, but not while an
// earlier agent is there that may move them.
func (e *Enforcer) RunExpiry(ctx context.Context) {
	tick := time.NewTicker(expiryTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			there, err := e.AwaitDeparture(ctx)
			if err != nil {
				e.log.Error("what the last agent left stays; trying again", "error", err)
			}
			if there {
				continue
			}
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
	now := e.moment(e.now())
	var failed error
	for {
		taken, err := e.expire(now)
		if err != nil {
			failed = err
		}
		if taken < expiryPart {
			return failed
		}
	}
}

// expire ends a part of the grants that are due, and tells how many were.
func (e *Enforcer) expire(now moment) (taken int, failed error) {
	e.grants.plan.Lock()
	defer e.grants.plan.Unlock()
	dues := e.grants.due.take(now, expiryPart)
	over := map[*grantSet][]netip.Addr{}
	for _, d := range dues {
		g := d.set.entries[d.addr]
		if g == nil || g.queued != d.at {
			continue
		}
		if g.queued = 0; g.until() > now {
			e.enqueue(d.set, d.addr, g)
			continue
		}
		over[d.set] = append(over[d.set], d.addr)
	}
	for s, err := range e.end(over) {
		for _, a := range over[s] {
			s.entries[a].queued = now + moment(expiryRetry)
			e.grants.due.push(due{now + moment(expiryRetry), s, a})
		}
		if !ipset.IsNotFound(err) {
			failed = err
		}
	}
	return len(dues), failed
}
