package proxy

import (
	"errors"
	"sync"
)

var errAbandoned = errors.New("whoever asked first did not finish")

// inflight is the resolver that asks one identical query at a time: who asks the
// same meanwhile gets the same answer.
type inflight struct {
	next  resolver
	stats *counters
	mu    sync.Mutex
	calls map[ask]*call
}

type call struct {
	done   chan struct{}
	answer found
	err    error
}

func newInflight(next resolver, stats *counters) *inflight {
	return &inflight{next: next, stats: stats, calls: map[ask]*call{}}
}

// resolve waits no longer than the first who asked: its deadline bounds everyone's.
func (f *inflight) resolve(a ask) (found, error) {
	f.mu.Lock()
	if c, ok := f.calls[a]; ok {
		f.mu.Unlock()
		f.stats.Coalesced.Add(1)
		<-c.done
		return c.answer, c.err
	}
	c := &call{done: make(chan struct{}), err: errAbandoned}
	f.calls[a] = c
	f.mu.Unlock()

	defer func() {
		f.mu.Lock()
		delete(f.calls, a)
		f.mu.Unlock()
		close(c.done)
	}()
	c.answer, c.err = f.next.resolve(a)
	return c.answer, c.err
}
