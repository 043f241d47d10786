package proxy

import (
	"errors"
	"sync"

	"github.com/namegate/namegate/proxy/wire"
)

var errAbandoned = errors.New("whoever asked first did not finish")

// inflight is the resolver that asks one identical query at a time: who asks the
// same meanwhile gets the same answer.
type inflight struct {
	next  resolver
	stats *counters
	mu    sync.Mutex
	calls map[wire.Query]*call
}

type call struct {
	done   chan struct{} // closed at the end; of a flight nil until somebody waits for it
	answer found
	err    error
	flight *flight // nil: a goroutine asks
}

func newInflight(next resolver, stats *counters) *inflight {
	return &inflight{next: next, stats: stats, calls: map[wire.Query]*call{}}
}

// resolve waits no longer than the first who asked: its deadline bounds everyone's.
func (f *inflight) resolve(a wire.Query) (found, error) {
	for {
		c, first := f.join(a)
		if first {
			return f.lead(a, c)
		}
		f.stats.Coalesced.Add(1)
		<-c.done
		if !errors.Is(c.err, errAbandoned) {
			return c.answer, c.err
		}
	}
}

// join returns the call that is under way, or a new one that the caller leads.
func (f *inflight) join(a wire.Query) (c *call, first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c, ok := f.calls[a]; ok {
		if c.done == nil {
			c.done = make(chan struct{})
		}
		return c, false
	}
	c = &call{done: make(chan struct{}), err: errAbandoned}
	f.calls[a] = c
	return c, true
}

func (f *inflight) lead(a wire.Query, c *call) (found, error) {
	defer func() {
		f.mu.Lock()
		delete(f.calls, a)
		f.mu.Unlock()
		close(c.done)
	}()
	c.answer, c.err = f.next.resolve(a)
	return c.answer, c.err
}

// board lets a query on the short way fly with one that asks the same, or begins
// a flight for it, which it is the first of. Not ok: a goroutine asks the same.
func (f *inflight) board(x *express) (fl *flight, first, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c, there := f.calls[x.query]; there {
		if c.flight == nil {
			return nil, false, false
		}
		c.flight.riders = append(c.flight.riders, x)
		f.stats.Coalesced.Add(1)
		return c.flight, false, true
	}
	fl = &flight{in: f, lead: x}
	fl.riders = append(fl.room[:0], x)
	fl.call.flight, fl.call.err = fl, errAbandoned
	f.calls[x.query] = &fl.call
	return fl, true, true
}

// outcome is how a flight ended for those on the short way.
type outcome struct {
	found
	err error
}

// land ends a flight: nobody boards any more. Waiters on goroutines get the result
// of answer, which is called without the lock: it may unpack a message. After a fault
// in it they ask themselves.
func (f *inflight) land(fl *flight, answer func() (found, error)) (riders []*express) {
	f.mu.Lock()
	landed := fl.landed
	fl.landed = true
	if !landed {
		delete(f.calls, fl.lead.query)
	}
	f.mu.Unlock()
	if !landed && fl.call.done != nil { // nobody sets it from here on
		defer close(fl.call.done)
		fl.call.answer, fl.call.err = answer()
	}
	return fl.riders
}
