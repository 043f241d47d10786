package proxy

import (
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/cache"
	"github.com/namegate/namegate/proxy/upstream"
	"github.com/namegate/namegate/proxy/wire"
)

var (
	errAbandoned = errors.New("the call ended in a fault; ask again")
	errFault     = errors.New("a fault of the proxy")
)

// waiter waits for a call.
type waiter interface {
	// answerView is where an answer that is read in place is copied to.
	answerView() *wire.AnswerView
	// complete ends the wait. It must not block; the outcome is shared.
	complete(o *outcome)
}

// outcome is how a call ended.
type outcome struct {
	msg   *dns.Msg // nil: the waiter's view has the answer, or there is none
	from  netip.AddrPort
	entry *cache.Entry // that the answer is kept as; nil: it is not
	err   error        // errAbandoned: ask again
}

// calls are the calls in flight, one for each query.
type calls struct {
	r   *cachingResolver
	mu  sync.Mutex
	all map[wire.Query]*call
}

// join lets w wait for the call that asks the same, or for a new one, which the caller
// starts. From then on w is the call's.
func (f *calls) join(a wire.Query, z *zone, w waiter) (c *call, first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c = f.all[a]; c != nil {
		c.waiters, c.joined = append(c.waiters, w), true
		f.r.s.stats.Coalesced.Add(1)
		return c, false
	}
	c = &call{calls: f, query: a, zone: z, view: w.answerView()}
	c.waiters = append(c.room[:0], w)
	f.all[a] = c
	return c, true
}

// call is one query in flight at the upstreams of its zone, for all that ask the same.
type call struct {
	calls   *calls
	query   wire.Query
	zone    *zone
	view    *wire.AnswerView // the first waiter's
	ended   atomic.Bool      // by an answer or a fault: its setter completes the call
	outcome outcome
	over    bool     // no waiter joins any more; the lock of calls
	waiters []waiter // the first began it; the lock of calls, and when the call is over the completer's
	room    [1]waiter
	joined  bool // there was a second one; the lock of calls
}

// upstreams are how a zone's upstreams are asked; *upstream.Zone is.
type upstreams interface {
	Start(q wire.Query, to upstream.Responder, batch *upstream.Batch)
}

// start asks the upstreams, with the other queries of the batch unless that is nil.
func (c *call) start(batch *upstream.Batch) {
	s := c.calls.r.s
	ok := s.protect("a query to an upstream", func() {
		s.step("ask")
		c.zone.upstreams.Start(c.query, c, batch)
	})
	if !ok && c.ended.CompareAndSwap(false, true) {
		c.abandon()
	}
}

// Packet implements upstream.Responder: it completes the call with a reply that has
// addresses and can be read in place.
func (c *call) Packet(packet []byte, from netip.AddrPort) (taken bool) {
	if len(packet) == upstream.PacketBytes || c.ended.Load() { // it may be cut; or the call has ended in a fault
		return c.ended.Load()
	}
	c.finish(func() {
		r := c.calls.r
		r.s.step("reply of the upstream")
		keep := c.zone.keeps(c.query)
		bounds := cache.Bounds(r.config.TTL, keep)
		if !c.view.Parse(packet, c.query.Question, r.config.Limits.Addresses, bounds[:]) {
			return
		}
		taken = true
		if !c.ended.CompareAndSwap(false, true) {
			return
		}
		c.view.Own()
		c.complete(outcome{from: from, entry: r.cache.WriteView(keep, c.query, c.view, from, r.s.elapsed())})
	})
	return taken || c.ended.Load()
}

// Done implements upstream.Responder: it completes the call with a message or an error.
func (c *call) Done(a upstream.Answer, err error) {
	if !c.ended.CompareAndSwap(false, true) {
		return
	}
	if errors.Is(err, upstream.ErrFault) {
		c.abandon()
		return
	}
	c.finish(func() {
		o := outcome{msg: a.Msg, from: a.From, err: err}
		if r := c.calls.r; err == nil {
			r.s.step("answer of the upstream")
			o.entry = r.cache.Write(r.config.TTL, c.zone.keeps(c.query), c.query, a.Msg, a.From, r.s.elapsed())
		}
		c.complete(o)
		if r := c.calls.r; err != nil && c.joined && r.host.IsValid() && r.s.unanswered != nil {
			r.s.unanswered(r.host)
		}
	})
}

// finish runs the end of the call. A fault there ends it as well.
func (c *call) finish(end func()) {
	if !c.calls.r.s.protect("a reply", end) {
		c.ended.Store(true)
		c.abandon()
	}
}

// complete tells all waiters how the call ended.
func (c *call) complete(o outcome) {
	c.calls.r.s.step("complete")
	c.outcome = o
	c.remove()
	if o.msg == nil && o.err == nil {
		for _, w := range c.waiters {
			if v := w.answerView(); v != c.view {
				v.CopyFrom(c.view)
			}
		}
	}
	for w := c.next(); w != nil; w = c.next() {
		w.complete(&c.outcome)
	}
}

// abandon ends the call after a fault: it costs the first waiter an error, and the others
// ask again.
func (c *call) abandon() {
	c.remove()
	o := &outcome{err: errFault}
	for w := c.next(); w != nil; w = c.next() {
		w.complete(o)
		o = &outcome{err: errAbandoned}
	}
}

// remove takes the call out of flight: no waiter joins any more.
func (c *call) remove() {
	c.calls.mu.Lock()
	defer c.calls.mu.Unlock()
	if !c.over {
		c.over = true
		delete(c.calls.all, c.query)
	}
}

// next takes the next waiter off a call that is over, nil at the end: it belongs to the
// caller alone then.
func (c *call) next() waiter {
	if len(c.waiters) == 0 {
		return nil
	}
	w := c.waiters[0]
	c.waiters = c.waiters[1:]
	return w
}
