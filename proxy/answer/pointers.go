package answer

import (
	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/wire"
)

// Pointer is a name that an answer points at, and for how many seconds.
type Pointer struct {
	Name fqdn.Name
	TTL  uint32
}

// Pointers returns the names that the answer's records of the type that was asked
// point at, where the question reaches their owner. further is true where the
// question was followed itself: then only another name of the service counts, or
// one answer could lead for ever.
func Pointers(q wire.Question, m *dns.Msg, further bool) (out []Pointer) {
	switch q.Type {
	case dns.TypeSVCB, dns.TypeHTTPS:
	case dns.TypeSRV, dns.TypeMX:
		if further {
			return nil
		}
	default:
		return nil
	}
	owners, reason := follow(q, m.Answer)
	if reason != "" {
		return nil
	}
	for _, rr := range m.Answer {
		hdr := rr.Header()
		if hdr.Rrtype != q.Type || hdr.Class != dns.ClassINET {
			continue
		}
		at := indexOf(owners, hdr.Name)
		n, err := fqdn.ParseName(targetOf(rr))
		if at < 0 || err != nil || n == "" || n == owners[at].name {
			continue
		}
		out = append(out, Pointer{n, min(owners[at].ttl, wire.ValidTTL(hdr.Ttl))})
	}
	return out
}

// targetOf returns the name that a record points at, "." for none.
func targetOf(rr dns.RR) string {
	switch rr := rr.(type) {
	case *dns.SRV:
		return rr.Target // RFC 2782: "." is no service
	case *dns.MX:
		return rr.Mx // RFC 7505: "." takes no mail
	case *dns.SVCB:
		return rr.Target // RFC 9460 §2.5: "." is the owner, or no service
	case *dns.HTTPS:
		return rr.Target
	}
	return "."
}
