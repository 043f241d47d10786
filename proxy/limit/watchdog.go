package limit

import (
	"sync"
	"sync/atomic"
	"time"
)

// Watchdog notices a query that does not end, without a lock for each query. Queries
// are counted by the epoch in which they begin. There are two epochs, the present one
// and the one before, and the next begins only when the one before has no query left.
// So a query that hangs keeps its epoch from ending. The zero value is ready.
type Watchdog struct {
	counts  [2]atomic.Int64
	present atomic.Uint32 // the index in counts

	mu    sync.Mutex
	since time.Duration // the begin of the present epoch
}

// Begin counts a query; the result is for End.
func (w *Watchdog) Begin() (epoch uint32) {
	epoch = w.present.Load()
	w.counts[epoch].Add(1)
	return epoch
}

// End ends a query.
func (w *Watchdog) End(epoch uint32) { w.counts[epoch].Add(-1) }

// Hung tells at the time now whether a query has been in flight for longer than most.
// It has to be asked often, as the self-query does: epochs end here. A query that hangs
// is noticed between most and twice most after its begin.
func (w *Watchdog) Hung(now, most time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	present := w.present.Load()
	switch {
	case now < w.since:
		w.since = now // the clock went back
	case now-w.since <= most:
	case w.counts[1-present].Load() > 0:
		return true
	default:
		w.present.Store(1 - present)
		w.since = now
	}
	return false
}
