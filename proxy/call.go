package proxy

import (
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

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
	// complete ends the wait. It must not block.
	complete(o outcome)
}

// outcome is how a call ended.
type outcome struct {
	msg   *dns.Msg // shared; nil: the waiter's view has the answer, or there is none
	from  netip.AddrPort
	entry *cache.Entry // that the answer is kept as; nil: it is not
	err   error        // errAbandoned: ask again
	at    time.Time    // when an answer came
}

// calls are the calls in flight, one for each query to a zone.
type calls struct {
	s   *Server
	mu  sync.Mutex
	all map[callKey]*call
}

// callKey is what a call asks, and whom.
type callKey struct {
	zone  *zone
	query wire.Query
}

var freeCalls = sync.Pool{New: func() any { return new(call) }}

// join lets w wait for the call that asks the same, or for a new one, which the caller
// starts. From then on w is the call's.
func (f *calls) join(a wire.Query, z *zone, w waiter) (c *call, first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := callKey{z, a}
	if c = f.all[key]; c != nil {
		c.waiters, c.joined = append(c.waiters, w), true
		f.s.stats.Coalesced.Add(1)
		return c, false
	}
	c = freeCalls.Get().(*call)
	c.calls, c.callKey, c.view = f, key, w.answerView()
	c.waiters = append(c.room[:0], w)
	f.all[key] = c
	return c, true
}

// call is one query in flight at the upstreams of its zone, for all that ask the same.
type call struct {
	callKey
	calls   *calls
	view    *wire.AnswerView // the first waiter's
	started atomic.Bool      // start has returned
	ended   atomic.Bool      // by an answer or a fault: its setter completes the call
	over    bool             // no waiter joins any more; the lock of calls
	waiters []waiter         // the first began it; the lock of calls, and when the call is over the completer's
	room    [1]waiter
	joined  bool // there was a second one; the lock of calls
}

// upstreams are how a zone's upstreams are asked; *upstream.Zone is.
type upstreams interface {
	Start(q wire.Query, to upstream.Responder, batch *upstream.Batch)
}

// start asks the upstreams, with the other queries of the batch unless that is nil.
func (c *call) start(batch *upstream.Batch) {
	s := c.calls.s
	ok := s.protect("a query to an upstream", func() {
		s.step("ask")
		c.zone.upstreams.Start(c.query, c, batch)
	})
	if !ok && c.ended.CompareAndSwap(false, true) {
		c.abandon()
	}
	if ok {
		c.started.Store(true)
	}
}

// Packet implements upstream.Responder: it completes the call with a reply that has
// addresses and can be read in place.
func (c *call) Packet(packet []byte, from netip.AddrPort) (taken bool) {
	if len(packet) == upstream.PacketBytes || c.ended.Load() { // it may be cut; or the call has ended in a fault
		return c.ended.Load()
	}
	completed := false
	ok := c.finish(func() {
		s, z := c.calls.s, c.zone
		s.step("reply of the upstream")
		keep := z.keeps(c.query)
		bounds := cache.Bounds(z.config.TTL, keep)
		if !c.view.Parse(packet, c.query.Question, z.config.Limits.Addresses, bounds[:]) {
			return
		}
		taken = true
		if !c.ended.CompareAndSwap(false, true) {
			return
		}
		c.view.Own()
		o := outcome{from: from, at: s.now()}
		if keep != nil {
			o.entry = z.cache.WriteView(keep, c.query, c.view, from, o.at.Sub(s.started))
		}
		c.complete(o)
		completed = true
	})
	taken = taken || c.ended.Load()
	if ok && completed && c.started.Load() { // nothing else has it
		*c = call{}
		freeCalls.Put(c)
	}
	return taken
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
		s, z := c.calls.s, c.zone
		o := outcome{msg: a.Msg, from: a.From, err: err, at: s.now()}
		if err == nil {
			s.step("answer of the upstream")
			o.entry = z.cache.Write(z.config.TTL, z.keeps(c.query), c.query, a.Msg, a.From, o.at.Sub(s.started))
		}
		c.complete(o)
		if err != nil && c.joined && z.host.IsValid() && s.unanswered != nil {
			s.unanswered(z.host)
		}
	})
}

// finish runs the end of the call. A fault there ends it as well.
func (c *call) finish(end func()) (ok bool) {
	if ok = c.calls.s.protect("a reply", end); !ok {
		c.ended.Store(true)
		c.abandon()
	}
	return ok
}

// complete tells all waiters how the call ended.
func (c *call) complete(o outcome) {
	c.calls.s.step("complete")
	c.remove()
	if o.msg == nil && o.err == nil {
		for _, w := range c.waiters {
			if v := w.answerView(); v != c.view {
				v.CopyFrom(c.view)
			}
		}
	}
	for w := c.next(); w != nil; w = c.next() {
		w.complete(o)
	}
}

// abandon ends the call after a fault: it costs the first waiter an error, and the others
// ask again.
func (c *call) abandon() {
	c.remove()
	o := outcome{err: errFault}
	for w := c.next(); w != nil; w = c.next() {
		w.complete(o)
		o.err = errAbandoned
	}
}

// remove takes the call out of flight: no waiter joins any more.
func (c *call) remove() {
	c.calls.mu.Lock()
	defer c.calls.mu.Unlock()
	if !c.over {
		c.over = true
		delete(c.calls.all, c.callKey)
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
