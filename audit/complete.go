package audit

import "time"

// stuckAfter is how long one write may take until the lines that wait for the next write
// count as missing.
const stuckAfter = time.Second

// coverage is from when on the kept lines are all lines. The lock of live guards it.
type coverage struct {
	from   time.Time // zero before Begin
	missed uint64    // of the Log, at the last call of miss
	// The last write, or the present one:
	writing bool
	began   time.Time
}

// startAt says that lines of a time before at may be missing.
func (c *coverage) startAt(at time.Time) {
	if !c.from.IsZero() && at.After(c.from) {
		c.from = at
	}
}

// miss takes how many lines the queue has refused in all.
func (c *coverage) miss(missed uint64, now time.Time) {
	if missed != c.missed {
		c.missed = missed
		c.startAt(now)
	}
}

// wrote says that the write has ended.
func (v *live) wrote() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.writing = false
}

// Begin says that from now on every decision of the node comes to this log. Before the first
// call, Complete knows nothing: an agent that starts shares the node with its predecessor.
func (l *Log) Begin() {
	l.live.mu.Lock()
	defer l.live.mu.Unlock()
	l.live.from = l.now()
}

// Complete returns for how long Recent has every DNS decision about the pods of a namespace;
// with "" about all pods and the node. The result is false if the Filter omits some of
// them, before Begin, and while a write does not end. It holds for lines that Recent
// returned before the call.
func (l *Log) Complete(namespace string) (time.Duration, bool) {
	v := &l.live
	v.mu.Lock()
	defer v.mu.Unlock()
	missed := l.missed.Load()
	now := l.now()
	v.miss(missed, now)
	if v.from.IsZero() || v.writing && now.Sub(v.began) > stuckAfter || !l.filter.Load().keepsDecisions(namespace) {
		return 0, false
	}
	return max(now.Sub(v.from), 0), true
}
