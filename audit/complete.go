package audit

import "time"

// stuckAfter is how long one write may take until the lines that wait for the next write
// count as missing.
const stuckAfter = time.Second

// namespacesCovered bounds the namespaces of which lines are missing each at its own time.
const namespacesCovered = 1024

// coverage is from when on the kept lines are all lines. The lock of live guards it.
type coverage struct {
	from time.Time            // zero before Begin
	of   map[string]time.Time // of namespaces, where that is later
	// The last write, or the present one:
	writing bool
	began   time.Time
}

// restart says that lines of a time before at may be missing, of any namespace.
func (c *coverage) restart(at time.Time) {
	if !c.from.IsZero() {
		c.from, c.of = at, nil
	}
}

// startAt says that lines of a namespace of a time before at may be missing.
func (c *coverage) startAt(namespace string, at time.Time) {
	if c.from.IsZero() || !at.After(c.from) || !at.After(c.of[namespace]) {
		return
	}
	if _, known := c.of[namespace]; !known && len(c.of) >= namespacesCovered {
		c.from = c.since("")
		clear(c.of)
	}
	if c.of == nil {
		c.of = map[string]time.Time{}
	}
	c.of[namespace] = at
}

// since returns from when on the lines of a namespace are complete; with "" of all.
func (c *coverage) since(namespace string) time.Time {
	latest := c.from
	if own := c.of[namespace]; own.After(latest) {
		latest = own
	}
	if namespace != "" {
		return latest
	}
	for _, at := range c.of {
		if at.After(latest) {
			latest = at
		}
	}
	return latest
}

// miss takes the namespaces of which the queue has refused lines.
func (c *coverage) miss(refused map[string]bool, now time.Time) {
	for namespace := range refused {
		c.startAt(namespace, now)
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
	l.live.from, l.live.of = l.now(), nil
}

// Complete returns for how long the lines that Follow returned before the call have every DNS decision about
// the pods of a namespace; with "" about all pods and the node. The result is false if the Filter omits some of
// them, before Begin, and while a write does not end.
func (l *Log) Complete(namespace string) (time.Duration, bool) {
	v := &l.live
	v.mu.Lock()
	defer v.mu.Unlock()
	now := l.now()
	v.miss(l.queue.refusals(), now)
	if v.from.IsZero() || v.writing && now.Sub(v.began) > stuckAfter || !l.filter.Load().keepsDecisions(namespace) {
		return 0, false
	}
	return max(now.Sub(v.since(namespace)), 0), true
}
