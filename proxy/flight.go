package proxy

import (
	"errors"
	"net/netip"
	"sync/atomic"

	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/upstream"
	"github.com/namegate/namegate/proxy/wire"
)

// flight is one question under way at one upstream, for those on the short way who
// ask it.
type flight struct {
	in     *inflight
	call   call
	filler *filler
	lead   *express    // it began it
	ended  atomic.Bool // by its answer, or by a fault: whoever sets it lands it
	landed bool        // nobody boards any more; in's lock
	riders []*express  // lead first; in's lock, and when it has landed those that have not gone on
	room   [1]*express
}

// begin has the question sent with the others in the batch. Whose turn it is is
// found here: a query that only boards takes nobody's.
func (fl *flight) begin(z *upstream.Zone, with *upstream.Batch) {
	x := fl.lead
	fl.filler = x.setup.keeper.filler
	defer func() {
		if r := recover(); r != nil {
			fl.filler.s.fault("a query to an upstream", r)
			if fl.ended.CompareAndSwap(false, true) {
				fl.divert(nil)
			}
		}
	}()
	fl.filler.s.step("ask")
	z.Start(x.query, fl, with)
	fl.filler.s.step("asked")
}

// Packet implements upstream.Responder: it ends the flight with the upstream's reply, if
// that is plain.
func (fl *flight) Packet(packet []byte, from netip.AddrPort) (taken bool) {
	if !fl.ended.CompareAndSwap(false, true) {
		return true
	}
	s := fl.filler.s
	defer func() {
		if r := recover(); r != nil {
			s.fault("a reply", r)
			fl.divert(nil) // those that have not gone on
			taken = true
		}
	}()
	s.step("reply of the upstream")
	a, config := fl.lead.query, fl.lead.setup.config
	zone := keeps(config, a)
	cut := len(packet) == upstream.PacketBytes // it may be longer
	if cut || !fl.plain(&fl.lead.reply, packet, config, zone) {
		fl.ended.Store(false)
		return false
	}
	r := &fl.lead.reply
	msg := r.Own()
	var kept *entry
	if zone != nil {
		if seconds := r.MinTTL(); seconds > 0 {
			kept = &entry{wire: msg, from: from, query: a, zone: zone}
			fl.filler.put(kept, seconds)
		}
	}
	s.step("kept")
	riders := fl.in.land(fl, func() (found, error) {
		s.step("land")
		return foundOn(msg, from), nil
	})
	s.step("landed")
	for i, x := range riders {
		if i > 0 {
			x.reply.CopyFrom(r)
		}
		if kept != nil && zone.Cache.Prefetch.Amount > 0 && x.who.view != nil {
			fl.filler.cache.asked(kept, x.who.view.Pod.PodRef)
		}
	}
	for x := fl.next(); x != nil; x = fl.next() {
		x.answered(from)
	}
	return true
}

// Done implements upstream.Responder: everybody goes the long way with the answer, or
// with why there is none. After a fault each asks anew.
func (fl *flight) Done(a upstream.Answer, err error) {
	if !fl.ended.CompareAndSwap(false, true) {
		return
	}
	s := fl.filler.s
	defer func() {
		if r := recover(); r != nil {
			s.fault("a query to the upstreams", r)
			fl.divert(nil)
		}
	}()
	if errors.Is(err, upstream.ErrFault) {
		fl.divert(nil)
		return
	}
	got := outcome{found{a.Msg, a.From}, err}
	if err == nil {
		fl.filler.fill(fl.lead.query, got.found)
	}
	fl.divert(&got)
}

// next takes the next query off those that wait for a flight that has landed, nil at
// the end: it is the caller's, and nobody else's in a fault.
func (fl *flight) next() *express {
	if len(fl.riders) == 0 {
		return nil
	}
	x := fl.riders[0]
	fl.riders = fl.riders[1:]
	return x
}

// plain reads the reply.
func (fl *flight) plain(r *wire.AnswerView, packet []byte, c *corefile.Config, z *corefile.Zone) bool {
	a := fl.lead.query
	bounds := [2]wire.TTLBounds{{Min: c.TTL.Least, Max: c.TTL.Greatest}, {Max: wire.MaxTTL}}
	if z != nil {
		bounds[1] = wire.TTLBounds{Min: wholeSeconds(z.Cache.Least), Max: wholeSeconds(z.Cache.Greatest)}
	}
	return r.Parse(packet, a.Question, c.Limits.Addresses, bounds[:])
}

// divert sends everybody the long way, with how the flight ended, nil after a fault:
// each asks anew then, as those do who wait on goroutines.
func (fl *flight) divert(got *outcome) {
	fl.in.land(fl, func() (found, error) {
		if got == nil {
			return found{}, errAbandoned
		}
		return got.found, got.err
	})
	for x := fl.next(); x != nil; x = fl.next() {
		x.long(got)
	}
}

// foundOn is the answer that a kept message is.
func foundOn(wire []byte, from netip.AddrPort) found {
	return found{(&entry{wire: wire}).message(), from}
}
