package proxy

import (
	"net/netip"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/limit"
	"github.com/namegate/namegate/proxy/listener"
)

// client returns the client whose limits count for a query.
func (s *Server) client(a *identity) *limit.Client {
	if !a.known {
		return s.clients.Unknown()
	}
	return s.clients.Of(a.addr)
}

// admit takes a slot for one query, and counts which limit is reached.
func (s *Server) admit(a *identity) (slot limit.Slot, ok bool) {
	slot, result := s.clients.Admit(a.limits, &s.setup.Load().config.Limits, a.node)
	switch result {
	case limit.ClientFull:
		s.stats.ShedPod.Add(1)
	case limit.AllFull:
		s.stats.ShedAll.Add(1)
	}
	return slot, result == limit.Admitted
}

// silence is no response code: the query gets no reply.
const silence = -1

// meet returns the client of a query from an address. Another response code than NOERROR is the reply
// to the query, which is not taken: beyond its rate a client gets errors, as often as it may ask and
// no more, because in a flood a reply would cost more than the query did. The proxy's question to
// itself is exempt, and a client that is not identified yet.
func (h *handler) meet(from netip.Addr, now time.Duration) (c identity, rcode int) {
	s := h.s
	s.step("packet")
	c = h.identify(from)
	s.step("identified")
	if c.unidentified {
		return c, dns.RcodeSuccess
	}
	c.limits = s.client(&c)
	l := &s.setup.Load().config.Limits
	switch {
	case !c.self && !c.limits.Queries.Take(now, l.RatePerPod, l.BurstPerPod):
		s.stats.RateLimited.Add(1)
		return c, s.shed(c.limits, now)
	case !c.known:
		s.stats.UnknownSources.Add(1)
		return c, dns.RcodeRefused
	}
	return c, dns.RcodeSuccess
}

// shed returns the response code of a query that is not taken.
func (s *Server) shed(c *limit.Client, now time.Duration) (rcode int) {
	limits := &s.setup.Load().config.Limits
	if c.Errors.Take(now, limits.RatePerPod, limits.BurstPerPod) {
		return dns.RcodeServerFailure
	}
	s.stats.RateSilenced.Add(1)
	return silence
}

// inRate tells whether the node may send one more query for the pod of a view, and counts it.
func (s *Server) inRate(v *policy.View, rate policy.ZoneRate, now time.Duration) bool {
	return rate.PerMinute == 0 || s.zones.Take(v.Pod.PodRef, rate, now)
}

// elapsed is the time since the server was made, by a clock that cannot be set.
func (s *Server) elapsed() time.Duration { return s.now().Sub(s.started) }

// hangMargin is the time that a query may take beyond its bounds before the proxy reports
// itself hung: goroutines also wait for a processor.
const hangMargin = time.Second

// longest is how long a query may take by the configuration: two questions (a
// completed search path asks a second one), the grant, and a client over TCP that
// is slow to take the reply.
func longest(c *corefile.Config) time.Duration {
	var deadline time.Duration
	for _, z := range c.Zones {
		deadline = max(deadline, z.Deadline)
	}
	return 2*deadline + c.GrantTimeout + listener.MessageTimeout + hangMargin
}
