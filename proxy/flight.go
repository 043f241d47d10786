package proxy

import (
	"net/netip"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/corefile"
)

// flight is one question under way at one upstream, for those on the short way who
// ask it.
type flight struct {
	in     *inflight
	call   call
	filler *filler
	from   netip.AddrPort
	lead   *express   // it began it
	landed bool       // the riders have gone on
	riders []*express // lead first; in's lock
	room   [1]*express
}

// begin has the question sent with the others in by's letters.
func (fl *flight) begin(u *upstream, by attempt, with *letters) {
	x := fl.lead
	fl.filler, fl.from = x.setup.keeper.filler, u.addr
	u.start(x.ask, by, fl, with)
}

// take ends the flight with the upstream's reply, which answers the question and is
// the caller's again when take returns, or with an error. It may be called with
// locks of the upstream held.
func (fl *flight) take(packet []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			fl.filler.s.fault("a reply", r)
			if !fl.landed {
				fl.divert(nil)
			}
		}
	}()
	if err != nil || len(packet) == replyBuffer { // it may be longer
		fl.divert(nil)
		return
	}
	a, config := fl.lead.ask, fl.lead.setup.config
	zone := keeps(config, a)
	if !fl.plain(&fl.lead.reply, packet, config, zone) {
		fl.unplain(packet)
		return
	}
	r := &fl.lead.reply
	wire := append(make([]byte, 0, len(r.wire)), r.wire...)
	wire[10], wire[11] = 0, 0
	r.wire = wire
	var kept *entry
	if zone != nil {
		if seconds := r.least(); seconds > 0 {
			kept = &entry{wire: wire, from: fl.from, ask: a, zone: zone}
			fl.filler.put(kept, seconds)
		}
	}
	fl.landed = true
	riders := fl.in.land(fl, func() (found, error) { return foundOn(wire, fl.from), nil })
	for _, x := range riders[1:] {
		x.reply.copyFrom(r)
	}
	for _, x := range riders {
		if kept != nil && zone.Cache.Prefetch.Amount > 0 && x.who.view != nil {
			fl.filler.cache.asked(kept, x.who.view.Pod.PodRef)
		}
		x.answered(fl.from)
	}
}

// plain reads the reply.
func (fl *flight) plain(r *plainReply, packet []byte, c *corefile.Config, z *corefile.Zone) bool {
	a := fl.lead.ask
	bounds := [2]ttlBounds{{c.TTL.Least, c.TTL.Greatest}, {0, maxTTL}}
	if z != nil {
		bounds[1] = ttlBounds{wholeSeconds(z.Cache.Least), wholeSeconds(z.Cache.Greatest)}
	}
	return r.read(packet, a.Name, a.Type, c.Limits.Addresses, bounds[:])
}

// unplain hands on a reply that is not plain. One that is cut off, or from somebody
// who has no answer, is for nobody: the long way asks again, and elsewhere.
func (fl *flight) unplain(packet []byte) {
	m := new(dns.Msg)
	if len(packet) <= headerBytes || m.Unpack(packet) != nil || m.Truncated || passed(m.Rcode) {
		fl.divert(nil)
		return
	}
	got := found{m, fl.from}
	fl.filler.fill(fl.lead.ask, got)
	fl.divert(&got)
}

// divert sends everybody the long way, with the answer if there is one.
func (fl *flight) divert(got *found) {
	fl.landed = true
	riders := fl.in.land(fl, func() (found, error) {
		if got == nil {
			return found{}, errNotPlain
		}
		return *got, nil
	})
	for _, x := range riders {
		x.long(got)
	}
}

// foundOn is the answer that a kept message is.
func foundOn(wire []byte, from netip.AddrPort) found {
	return found{(&entry{wire: wire}).message(), from}
}
