package grants

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
)

// deadline is one grant's place in the queue. A grant that was extended meanwhile is
// queued again when its place comes up; a grant whose queued differs has another place.
type deadline struct {
	at   monotonic
	set  *set
	addr netip.Addr
}

// deadlineQueue is a heap of grants by deadline: each before the two at twice its place.
type deadlineQueue struct {
	h []deadline
	// most is how many places there may be until those of grants that have ended are dropped.
	most int
}

// minPlaces is the least such number.
const minPlaces = 4096

// grow makes room for n more.
func (q *deadlineQueue) grow(n int) {
	if n > cap(q.h)-len(q.h) {
		q.h = append(make([]deadline, 0, len(q.h)+n), q.h...) // slices.Grow gives more
	}
}

func (q *deadlineQueue) push(d deadline) {
	q.h = append(q.h, d)
	i := len(q.h) - 1
	for ; i > 0 && d.at < q.h[(i-1)/2].at; i = (i - 1) / 2 {
		q.h[i] = q.h[(i-1)/2]
	}
	q.h[i] = d
}

func (q *deadlineQueue) pop() deadline {
	first, last := q.h[0], len(q.h)-1
	q.h[0] = q.h[last]
	q.h[last] = deadline{}
	if q.h = q.h[:last]; last > 0 {
		q.down(0)
	}
	return first
}

// down moves a place behind those below it that are earlier.
func (q *deadlineQueue) down(i int) {
	d := q.h[i]
	for next := 2*i + 1; next < len(q.h); next = 2*i + 1 {
		if next+1 < len(q.h) && q.h[next+1].at < q.h[next].at {
			next++
		}
		if d.at <= q.h[next].at {
			break
		}
		q.h[i] = q.h[next]
		i = next
	}
	q.h[i] = d
}

// order makes a heap of places in any order.
func (q *deadlineQueue) order() {
	for i := len(q.h)/2 - 1; i >= 0; i-- {
		q.down(i)
	}
}

// prune drops the places of grants that have ended or have another place, once there are many: a
// pod at its bound ends grants long before their deadlines.
func (q *deadlineQueue) prune() {
	if len(q.h) < max(minPlaces, q.most) {
		return
	}
	q.h = slices.DeleteFunc(q.h, func(d deadline) bool {
		g := d.set.entries[d.addr]
		return g == nil || g.queued != d.at
	})
	q.order()
	q.most = 2 * len(q.h)
}

// clear removes all places and keeps their memory.
func (q *deadlineQueue) clear() {
	clear(q.h)
	q.h = q.h[:0]
}

// due removes and returns at most n places whose deadline is not after now.
func (q *deadlineQueue) due(now monotonic, n int) []deadline {
	var out []deadline
	for len(q.h) > 0 && q.h[0].at <= now && len(out) < n {
		out = append(out, q.pop())
	}
	return out
}

// enqueue gives a grant a place in the queue of deadlines, if it has none or only
// a later one. The caller holds mu.
func (t *Table) enqueue(s *set, a netip.Addr, g *grant) {
	until := g.due()
	if g.queued == 0 || until < g.queued {
		t.enqueueAt(until, s, a, g)
	}
}

// enqueueAt gives a grant a place in the queue of deadlines. The caller holds mu.
func (t *Table) enqueueAt(at monotonic, s *set, a netip.Addr, g *grant) {
	g.queued = at
	t.deadlines.prune()
	t.deadlines.push(deadline{at, s, a})
}

// expiryPart is how many grants end at a time, about a millisecond's work: new
// grants wait for no more.
const expiryPart = 1024

// expiryRetry is how long a grant waits that the kernel refused to remove.
const expiryRetry = time.Second

// Expire removes grants whose deadline has passed from the kernel. Connections that they
// admitted stay. A grant that the kernel refuses to remove is tried again after a second,
// and ends by the kernel's own timeout at the latest.
func (t *Table) Expire() error {
	now := t.cfg.Clock.read().now
	var failed error
	var uses []use
	for n := expiryPart; n == expiryPart; {
		var err error
		if n, uses, err = t.expire(now, uses); err != nil {
			failed = err
		}
	}
	return errors.Join(failed, t.judge(uses))
}

// expire ends a part of the grants that are due, and returns how many were due. It appends
// those that are to be judged for use. Grants of lasting rules end after the others.
func (t *Table) expire(now monotonic, uses []use) (n int, judge []use, failed error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	due := t.deadlines.due(now, expiryPart)
	over := map[*set][]netip.Addr{}
	var lasting []deadline
	for _, d := range due {
		g := d.set.entries[d.addr]
		if g == nil || g.queued != d.at {
			continue
		}
		switch g.queued = 0; {
		case g.toJudge(now):
			uses = append(uses, use{d.set, d.addr, g}) // judge gives it a place again
		case g.due() > now:
			t.enqueue(d.set, d.addr, g)
		case d.set.key.Rule.Lasting():
			lasting = append(lasting, d)
		default:
			over[d.set] = append(over[d.set], d.addr)
		}
	}
	failed = t.endAll(over, now)
	return len(due), uses, errors.Join(failed, t.endLasting(lasting, now))
}

// endAll ends grants, and has those tried again that the kernel refuses to remove. It returns the
// error of the last of their sets. The caller holds mu.
func (t *Table) endAll(over map[*set][]netip.Addr, now monotonic) (failed error) {
	for s, err := range t.end(over) {
		for _, a := range over[s] {
			t.enqueueAt(now+monotonic(expiryRetry), s, a, s.entries[a])
		}
		if !dataplane.IsNoSet(err) {
			failed = err
		}
	}
	return failed
}
