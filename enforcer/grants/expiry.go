package grants

import (
	"cmp"
	"errors"
	"math"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
)

// deadlines is the queue of all grants of the table, by the second in which each is due.
type deadlines struct {
	of    map[uint32][]*grant
	first uint32 // no earlier second has grants
}

func secondOf(m monotonic) uint32 {
	return uint32(min(max(int64(m)/int64(time.Second), 0), math.MaxUint32))
}

// remove takes a grant out of the queue, if it has a place there.
func (d *deadlines) remove(g *grant) {
	if g.place == 0 {
		return
	}
	all := d.of[g.second]
	last := len(all) - 1
	all[g.place-1], all[last].place = all[last], g.place
	g.place, all[last] = 0, nil
	if d.of[g.second] = all[:last]; last == 0 {
		delete(d.of, g.second)
	}
}

// enqueueAt moves a grant to its place in the queue for a moment.
func (d *deadlines) enqueueAt(at monotonic, g *grant) {
	d.remove(g)
	if g.second = secondOf(at); len(d.of) == 0 {
		*d = deadlines{map[uint32][]*grant{}, g.second} // a map does not shrink
	}
	d.first = min(d.first, g.second)
	all := append(d.of[g.second], g)
	d.of[g.second], g.place = all, int32(len(all))
}

// enqueue moves a grant to the moment at which it is due.
func (d *deadlines) enqueue(g *grant) { d.enqueueAt(g.due(), g) }

// due removes and returns at most n grants whose moment is not after now.
func (d *deadlines) due(now monotonic, n int) (out []*grant) {
	for last := secondOf(now); len(d.of) > 0 && d.first <= last; {
		all := d.of[d.first]
		for i := len(all); i > 0 && len(out) < n; i-- {
			if g := all[i-1]; d.first < last || g.due() <= now {
				d.remove(g)
				out = append(out, g)
			}
		}
		if len(out) == n || len(d.of[d.first]) > 0 {
			return out
		}
		d.first = math.MaxUint32
		for second := range d.of {
			d.first = min(d.first, second)
		}
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
// and ends by the kernel's own timeout at the latest. Keys that grants left go
// here, where no other agent writes: its grants may have them.
func (t *Table) Expire() (failed error) {
	now := t.cfg.Clock.read().now
	var uses []*grant
	for n := expiryPart; n == expiryPart; {
		var err error
		n, uses, err = t.expire(now, uses)
		failed = cmp.Or(err, failed)
	}
	failed = errors.Join(failed, t.judge(uses, now))
	for n, more := 0, t.cfg.RemoveKeys != nil; more && n < keyParts; n++ {
		var err error
		more, err = t.removeKeys()
		failed = errors.Join(failed, err)
	}
	return failed
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
