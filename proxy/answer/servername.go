package answer

import (
	"slices"
	"strings"

	"github.com/miekg/dns"
)

// ShowServerName leaves out of a reply what clients take from HTTPS and SVCB records to hide the server name of a
// connection, or to connect by QUIC: keys of Encrypted Client Hello, and HTTP/3. A record that no client could use without
// is left out, and with its signature a signed set of which a record would change. Records are copied before a change.
func ShowServerName(r *dns.Msg) {
	for _, section := range []*[]dns.RR{&r.Answer, &r.Ns, &r.Extra} {
		shown, changed := make([]dns.RR, 0, len(*section)), []dns.RR(nil)
		for _, rr := range *section {
			is := rr
			if s := service(rr); s != nil && hides(s) {
				is, changed = showing(rr), append(changed, rr)
			}
			if is != nil {
				shown = append(shown, is)
			}
		}
		if changed == nil {
			continue
		}
		changed = slices.DeleteFunc(changed, func(c dns.RR) bool {
			return !slices.ContainsFunc(*section, func(rr dns.RR) bool { return rr.Header().Rrtype == dns.TypeRRSIG && sameSet(rr, c) })
		})
		*section = slices.DeleteFunc(shown, func(rr dns.RR) bool {
			return slices.ContainsFunc(changed, func(c dns.RR) bool { return sameSet(rr, c) })
		})
		r.AuthenticatedData = false
	}
}

// sameSet tells whether two records are of one set, or signatures of it.
func sameSet(a, b dns.RR) bool {
	of := func(rr dns.RR) uint16 {
		if sig, ok := rr.(*dns.RRSIG); ok {
			return sig.TypeCovered
		}
		return rr.Header().Rrtype
	}
	return of(a) == of(b) && strings.EqualFold(a.Header().Name, b.Header().Name)
}

// service returns the content of an HTTPS or SVCB record in service mode, nil for another record.
func service(rr dns.RR) *dns.SVCB {
	s, _ := rr.(*dns.SVCB)
	if https, ok := rr.(*dns.HTTPS); ok {
		s = &https.SVCB
	}
	if s == nil || s.Priority == 0 { // parameters of the alias mode mean nothing
		return nil
	}
	return s
}

func hides(s *dns.SVCB) bool {
	return slices.ContainsFunc(s.Value, func(kv dns.SVCBKeyValue) bool {
		alpn, ok := kv.(*dns.SVCBAlpn)
		return kv.Key() == dns.SVCB_ECHCONFIG || ok && slices.ContainsFunc(alpn.Alpn, http3)
	})
}

// http3 tells whether a protocol is HTTP/3, or a draft of it (h3-29).
func http3(protocol string) bool { return protocol == "h3" || strings.HasPrefix(protocol, "h3-") }

// showing returns a copy without what hides; nil if a client may not use the record then (RFC 9460 §7.1, §8), or
// without HTTP/3 no protocol of it is listed.
func showing(rr dns.RR) dns.RR {
	c := dns.Copy(rr)
	s := service(c)
	values := s.Value[:0]
	for _, kv := range s.Value {
		switch kv := kv.(type) {
		case *dns.SVCBECHConfig:
			continue
		case *dns.SVCBMandatory:
			if slices.Contains(kv.Code, dns.SVCB_ECHCONFIG) {
				return nil
			}
		case *dns.SVCBAlpn:
			if kv.Alpn = slices.DeleteFunc(kv.Alpn, http3); len(kv.Alpn) == 0 {
				return nil
			}
		}
		values = append(values, kv)
	}
	s.Value = values
	return c
}
