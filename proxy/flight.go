package proxy

import (
	"net/netip"
	"sync/atomic"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/mmsg"
	"github.com/namegate/namegate/proxy/wire"
)

// flight is one question under way at one upstream, for those on the short way who
// ask it.
type flight struct {
	in     *inflight
	call   call
	filler *filler
	tour   tour        // bounds all tries, those on the long way too
	u      *upstream   // that is asked on the short way; nil where none is
	lead   *express    // it began it
	ended  atomic.Bool // by its reply, or by a fault: whoever sets it lands it
	landed bool        // nobody boards any more; in's lock
	riders []*express  // lead first; in's lock, and when it has landed those that have not gone on
	room   [1]*express
}

// begin has the question sent with the others in the batch. Whose turn it is is
// found here: a query that only boards takes nobody's.
func (fl *flight) begin(f *forward, with *mmsg.SendBatch[*line]) {
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
	fl.tour = f.begin()
	if !fl.tour.r.zone.ForceTCP { // a reload may just have set it
		fl.u, _ = fl.tour.next()
	}
	if fl.u == nil {
		fl.ended.Store(true)
		fl.resume(nil, nil)
		return
	}
	fl.u.start(x.query, fl.tour.attempt(), fl, with)
	fl.filler.s.step("asked")
}

// take ends the flight with the upstream's reply, which answers the question and is
// the caller's again when take returns, or with an error. It may be called with
// locks of the upstream held.
func (fl *flight) take(packet []byte, err error) {
	if !fl.ended.CompareAndSwap(false, true) {
		return
	}
	s := fl.filler.s
	defer func() {
		if r := recover(); r != nil {
			s.fault("a reply", r)
			fl.divert(nil) // those that have not gone on
		}
	}()
	s.step("reply of the upstream")
	if err != nil {
		fl.resume(nil, err)
		return
	}
	a, config := fl.lead.query, fl.lead.setup.config
	zone := keeps(config, a)
	cut := len(packet) == replyBuffer // it may be longer
	if cut || !fl.plain(&fl.lead.reply, packet, config, zone) {
		fl.unplain(packet)
		return
	}
	r := &fl.lead.reply
	msg := r.Own()
	var kept *entry
	if zone != nil {
		if seconds := r.MinTTL(); seconds > 0 {
			kept = &entry{wire: msg, from: fl.u.addr, query: a, zone: zone}
			fl.filler.put(kept, seconds)
		}
	}
	s.step("kept")
	riders := fl.in.land(fl, func() (found, error) {
		s.step("land")
		return foundOn(msg, fl.u.addr), nil
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
		x.answered(fl.u.addr)
	}
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

// unplain hands on a reply that is not plain. One that is cut off, cannot be read, or
// is from somebody who has no answer, is for nobody: the long way goes on from there.
func (fl *flight) unplain(packet []byte) {
	m := parse(packet, len(packet) == replyBuffer)
	switch {
	case m == nil:
		fl.u.stats.WrongReplies.Add(1)
		fl.resume(nil, errManyWrong) // nobody waits for another over UDP
	case m.Truncated || passed(m.Rcode):
		fl.resume(m, nil)
	default:
		got := outcome{found: found{m, fl.u.addr}}
		fl.filler.fill(fl.lead.query, got.found)
		fl.divert(&got)
	}
}

// resume goes the long way for all at once, by the flight's own tour: m and err are
// how the query on the short way ended. Who asks the same meanwhile boards.
func (fl *flight) resume(m *dns.Msg, err error) {
	s := fl.filler.s
	s.crew.do(func() {
		var got *outcome
		defer func() {
			if r := recover(); r != nil {
				s.fault("a query to the upstreams", r)
			}
			fl.divert(got)
		}()
		s.step("resume")
		a := fl.lead.query
		answer, err := fl.tour.resume(a, fl.u, m, err)
		if err == nil {
			fl.filler.fill(a, answer)
		}
		s.step("resumed")
		got = &outcome{answer, err}
	})
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
