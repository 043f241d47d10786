package answer

import (
	"math"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/wire"
)

// BoundTTLs puts every TTL of a message that is not shared yet within the
// bounds, in seconds.
func BoundTTLs(m *dns.Msg, lowest, highest uint32) {
	MapTTLs(m, func(ttl uint32) uint32 { return min(max(ttl, lowest), highest) })
}

// IsNegative tells whether the answer says that the name does not exist, or has no
// record of the type (RFC 2308 §2).
func IsNegative(q wire.Question, m *dns.Msg) bool {
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

// MinTTL is the least TTL of a message's records, 0 if it has none.
func MinTTL(m *dns.Msg) uint32 {
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

// MapTTLs gives the records of a message that is not shared other TTLs.
func MapTTLs(m *dns.Msg, ttl func(uint32) uint32) *dns.Msg {
	for _, section := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
		for _, rr := range section {
			if h := rr.Header(); h.Rrtype != dns.TypeOPT {
				h.Ttl = ttl(wire.ValidTTL(h.Ttl))
			}
		}
	}
	return m
}
