package grants

import (
	"container/heap"
	"errors"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
)

// deadlines is the queue of all grants of the table, a heap by the moment at which each is due. A grant
// that was extended meanwhile is queued again when its place comes up.
type deadlines []deadline

// deadline is the moment for which a grant is in the queue.
type deadline struct {
	at    monotonic
	grant *grant
}

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].at < d[j].at }
func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].grant.place, d[j].grant.place = i+1, j+1
}

// Push implements heap.Interface.
func (d *deadlines) Push(x any) {
	*d = append(*d, x.(deadline))
	(*d)[len(*d)-1].grant.place = len(*d)
}

// Pop implements heap.Interface.
func (d *deadlines) Pop() any {
	last := len(*d) - 1
	g := (*d)[last].grant
	(*d)[last] = deadline{}
	*d, g.place = (*d)[:last], 0
	return g
}

// remove takes a grant out of the queue.
func (d *deadlines) remove(g *grant) {
	if g.place > 0 {
		heap.Remove(d, g.place-1)
	}
}

// enqueueAt gives a grant its place in the queue for a moment.
func (d *deadlines) enqueueAt(at monotonic, g *grant) {
	if g.place > 0 {
		(*d)[g.place-1].at = at
		heap.Fix(d, g.place-1)
	} else {
		heap.Push(d, deadline{at, g})
	}
}

// enqueue gives a grant a place in the queue, if it has none or only a later one.
func (d *deadlines) enqueue(g *grant) {
	if at := g.due(); g.place == 0 || at < (*d)[g.place-1].at {
		d.enqueueAt(at, g)
	}
}

// due removes and returns at most n grants whose moment is not after now.
func (d *deadlines) due(now monotonic, n int) (out []*grant) {
	for len(*d) > 0 && (*d)[0].at <= now && len(out) < n {
		out = append(out, heap.Pop(d).(*grant))
	}
	return out
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
	var uses []*grant
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
func (t *Table) expire(now monotonic, uses []*grant) (n int, judge []*grant, failed error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	due := t.deadlines.due(now, expiryPart)
	var over, lasting []*grant
	for _, g := range due {
		switch {
		case g.toJudge(now):
			uses = append(uses, g) // judge gives it a place again
		case g.due() > now:
			t.deadlines.enqueue(g)
		case g.set.key.Rule.Lasting():
			lasting = append(lasting, g)
		default:
			over = append(over, g)
		}
	}
	failed = t.endAll(over, now)
	return len(due), uses, errors.Join(failed, t.endLasting(lasting, now))
}

// endAll ends grants, and has those tried again that the kernel refuses to remove. It returns the
// error of the last of their sets. The caller holds mu.
func (t *Table) endAll(over []*grant, now monotonic) (failed error) {
	errs := t.end(over)
	for _, g := range over {
		if err := errs[g.set]; err != nil {
			t.deadlines.enqueueAt(now+monotonic(expiryRetry), g)
			if !dataplane.IsNoSet(err) {
				failed = err
			}
		}
	}
	return failed
}
