package proxy

import (
	"math"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/wire"
)

// boundTTLs puts every TTL of a message that nobody shares yet within the
// bounds, in seconds.
func boundTTLs(m *dns.Msg, least, greatest uint32) {
	retold(m, func(ttl uint32) uint32 { return min(max(ttl, least), greatest) })
}

// denies tells whether the answer says that the name does not exist, or has no
// record of the type (RFC 2308 §2).
func denies(q wire.Question, m *dns.Msg) bool {
	if m.Rcode == dns.RcodeNameError {
		return true
	}
	for _, rr := range m.Answer {
		if t := rr.Header().Rrtype; t == q.Type || q.Type == dns.TypeANY {
			return false
		}
	}
	return true
}

// nowhere tells whether the answer says of every type that the name has none. Not
// so one whose CNAME leads to a name that does not exist.
func nowhere(m *dns.Msg) bool { return m.Rcode == dns.RcodeNameError && len(m.Answer) == 0 }

// lifetime returns for how many seconds an answer may be kept by its own records
// and the zone's settings, 0 for not at all. TTLs in the message are put within the
// settings: nobody shares it yet.
//
// An answer with records lives as long as the least of their TTLs. One that says
// "no such" lives by the SOA record beside it, the lesser of its TTL and its minimum
// (RFC 2308 §5), and without one is not kept.
func lifetime(q wire.Question, m *dns.Msg, c *corefile.Cache) uint32 {
	if m.Truncated || m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError {
		return 0
	}
	if !denies(q, m) {
		boundTTLs(m, wholeSeconds(c.Least), wholeSeconds(c.Greatest))
		return leastTTL(m)
	}
	soa := soaOf(m)
	if soa == nil {
		return 0
	}
	soa.Hdr.Ttl = min(wire.ValidTTL(soa.Hdr.Ttl), wire.ValidTTL(soa.Minttl))
	boundTTLs(m, 0, wholeSeconds(c.Denial))
	return leastTTL(m)
}

func soaOf(m *dns.Msg) *dns.SOA {
	for _, rr := range m.Ns {
		if soa, ok := rr.(*dns.SOA); ok {
			return soa
		}
	}
	return nil
}

// leastTTL is the least TTL of a message's records, 0 if it has none.
func leastTTL(m *dns.Msg) uint32 {
	least := uint32(math.MaxUint32)
	for _, section := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
		for _, rr := range section {
			if h := rr.Header(); h.Rrtype != dns.TypeOPT {
				least = min(least, wire.ValidTTL(h.Ttl))
			}
		}
	}
	if least == math.MaxUint32 {
		return 0
	}
	return least
}

func wholeSeconds(d time.Duration) uint32 {
	return uint32(min(max(d/time.Second, 0), wire.MaxTTL))
}

// retold gives the records of a message that nobody shares other TTLs.
func retold(m *dns.Msg, ttl func(uint32) uint32) *dns.Msg {
	for _, section := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
		for _, rr := range section {
			if h := rr.Header(); h.Rrtype != dns.TypeOPT {
				h.Ttl = ttl(wire.ValidTTL(h.Ttl))
			}
		}
	}
	return m
}
