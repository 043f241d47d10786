package status

import "time"

// How long an object is left alone after it was written, or after that failed: at
// first, and at most. It doubles while the same is written again and again, so that
// two agents who disagree, or another controller, do not make each other write on
// and on.
const (
	patienceFirst = time.Second
	patienceMost  = 5 * time.Minute
	// patienceNarrow is the most between two attempts to narrow a companion that opens
	// ports to pods whose node does not deny what their policy does not allow.
	patienceNarrow = 5 * time.Second
)

// patience says when one object may be written next. Its zero value says: now.
type patience struct {
	next     time.Time
	wait     time.Duration
	narrowed time.Time // the last attempt to narrow
}

// left returns how long there is to wait, 0 if not at all.
func (p *patience) left(now time.Time) time.Duration { return max(0, p.next.Sub(now)) }

// since returns how long the last attempt is ago.
func (p *patience) since(now time.Time) time.Duration { return now.Sub(p.next) + p.wait }

// leftToNarrow is left for a companion that opens too much.
func (p *patience) leftToNarrow(now time.Time) time.Duration {
	if p.narrowed.IsZero() {
		return 0
	}
	return max(0, p.narrowed.Add(patienceNarrow).Sub(now))
}

// tried notes an attempt.
func (p *patience) tried(now time.Time) {
	p.wait = min(max(2*p.wait, patienceFirst), patienceMost)
	p.next = now.Add(p.wait)
}

// cap makes the wait after an attempt no longer than most.
func (p *patience) cap(now time.Time, most time.Duration) {
	p.wait = min(p.wait, most)
	p.next = now.Add(p.wait)
}

// quiet notes that nothing is to be written: an old quarrel is forgotten in time.
func (p *patience) quiet(now time.Time) {
	if now.Sub(p.next) > p.wait {
		*p = patience{}
	}
}
