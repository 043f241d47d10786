package cache

import (
	"net/netip"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/answer"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/wire"
)

// Bounds are the bounds of the TTLs in an answer: of the configuration, and of the cache
// if the answer has addresses and is to be cached.
func Bounds(t corefile.TTL, zone *corefile.Zone) (bounds [2]wire.TTLBounds) {
	bounds = [2]wire.TTLBounds{{Min: t.Min, Max: t.Max}, {Max: wire.MaxTTL}}
	if zone != nil {
		bounds[1] = wire.TTLBounds{Min: wholeSeconds(zone.Cache.MinTTL), Max: wholeSeconds(zone.Cache.MaxTTL)}
	}
	return bounds
}

// Write puts the TTLs of an answer that came now, and that is not shared yet, within
// their bounds, and keeps it by the zone, if it is one to keep; nil if it is not.
func (c *Cache) Write(t corefile.TTL, zone *corefile.Zone, q wire.Query, m *dns.Msg, from netip.AddrPort, now time.Duration) *Entry {
	if m.Rcode == dns.RcodeSuccess {
		answer.BoundTTLs(m, t.Min, t.Max)
	}
	if zone == nil {
		return nil
	}
	seconds := lifetime(q.Question, m, zone.Cache)
	if seconds == 0 || answer.ClientSpecific(m) {
		return nil
	}
	packed, e := *m, NewEntry(q, nil, from, now, 0)
	packed.Compress = true
	var err error
	if e.message, err = packed.PackBuffer(e.room[:]); err != nil {
		return nil
	}
	return c.write(zone, seconds, e)
}

// WriteView is Write for an answer that is read in place, within its bounds already. It keeps a copy.
func (c *Cache) WriteView(zone *corefile.Zone, q wire.Query, v *wire.AnswerView, from netip.AddrPort, now time.Duration) *Entry {
	seconds := v.MinTTL()
	if zone == nil || seconds == 0 {
		return nil
	}
	e := NewEntry(q, nil, from, now, 0)
	e.message = append(e.room[:0], v.Message...)
	return c.write(zone, seconds, e)
}

func (c *Cache) write(zone *corefile.Zone, seconds uint32, e *Entry) *Entry {
	e.zone = zone
	e.expires = e.stored + time.Duration(seconds)*time.Second
	e.staleUntil = e.expires + zone.Cache.ServeStale
	c.Put(e)
	return e
}

// lifetime returns for how many seconds an answer may be kept by its own records
// and the zone's settings, 0 for not at all. TTLs in the message are put within the
// settings: it is not shared yet.
//
// An answer with records lives as long as the least of their TTLs. One that says
// "no such" lives by the SOA record beside it, the lesser of its TTL and its minimum
// (RFC 2308 §5), and without one is not kept.
func lifetime(q wire.Question, m *dns.Msg, c *corefile.Cache) uint32 {
	if m.Truncated || m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError {
		return 0
	}
	if !answer.IsNegative(q, m) {
		answer.BoundTTLs(m, wholeSeconds(c.MinTTL), wholeSeconds(c.MaxTTL))
		return answer.MinTTL(m)
	}
	soa := soaOf(m)
	if soa == nil {
		return 0
	}
	soa.Hdr.Ttl = min(wire.ValidTTL(soa.Hdr.Ttl), wire.ValidTTL(soa.Minttl))
	answer.BoundTTLs(m, 0, wholeSeconds(c.NegativeTTL))
	return answer.MinTTL(m)
}

func soaOf(m *dns.Msg) *dns.SOA {
	for _, rr := range m.Ns {
		if soa, ok := rr.(*dns.SOA); ok {
			return soa
		}
	}
	return nil
}

func wholeSeconds(d time.Duration) uint32 {
	return uint32(min(max(d/time.Second, 0), wire.MaxTTL))
}
