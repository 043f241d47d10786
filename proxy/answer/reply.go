package answer

import (
	"slices"
	"strings"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/wire"
)

// Error returns a reply of our own, without records.
func Error(query *dns.Msg, rcode int) *dns.Msg {
	r := new(dns.Msg)
	r.SetRcode(query, rcode)
	if query.Opcode == dns.OpcodeQuery { // RA and CD are of queries alone
		r.RecursionAvailable = true
		r.CheckingDisabled = query.CheckingDisabled
	}
	return withOPT(query, r, nil)
}

// Explain adds the reason to a reply of our own, where the client takes one (RFC 8914).
func Explain(r *dns.Msg, code uint16, text string) {
	if opt := r.IsEdns0(); opt != nil {
		opt.Option = append(opt.Option, &dns.EDNS0_EDE{InfoCode: code, ExtraText: text})
	}
}

// Relay returns the upstream's answer as a reply to the client's query. The upstream's
// message and its records are shared: neither is changed, here or by later steps.
func Relay(query, m *dns.Msg) *dns.Msg {
	r := &dns.Msg{MsgHdr: m.MsgHdr, Question: query.Question, Answer: m.Answer, Ns: m.Ns}
	r.Id, r.Opcode, r.RecursionDesired, r.CheckingDisabled = query.Id, query.Opcode, query.RecursionDesired, query.CheckingDisabled
	r.Truncated, r.Zero = false, false
	opt := query.IsEdns0()
	if !query.AuthenticatedData && (opt == nil || !opt.Do()) {
		r.AuthenticatedData = false // RFC 6840 §5.8
	}
	for _, rr := range m.Extra {
		if rr.Header().Rrtype != dns.TypeOPT {
			r.Extra = append(r.Extra, rr)
		}
	}
	respell(r, m)
	return withOPT(query, r, m.IsEdns0())
}

// respell gives the records of the question's name the client's spelling, which
// may mix cases to tell forgeries apart; the upstream was asked in lower case.
func respell(r, m *dns.Msg) {
	if len(r.Question) == 0 || len(m.Question) == 0 {
		return
	}
	mine, theirs := r.Question[0].Name, m.Question[0].Name
	if mine == theirs || !strings.EqualFold(mine, theirs) {
		return
	}
	r.Answer = slices.Clone(r.Answer)
	for i, rr := range r.Answer {
		if rr.Header().Name == theirs {
			r.Answer[i] = dns.Copy(rr)
			r.Answer[i].Header().Name = mine
		}
	}
}

// Restrict leaves only the kept addresses in the reply's answer section and no addresses
// in other sections. It lowers their TTLs to the lowest on the way to an address, and to
// longest. Records are copied before a change.
func Restrict(r *dns.Msg, kept []wire.Address, longest uint32) {
	answer := make([]dns.RR, 0, len(r.Answer))
	for i, rr := range r.Answer {
		ttl := min(wire.ValidTTL(rr.Header().Ttl), longest)
		if carriesAddress(rr) {
			var mine []wire.Address
			for _, a := range kept {
				if a.Record == i {
					mine = append(mine, a)
					ttl = min(ttl, a.TTL)
				}
			}
			if rr = reduce(rr, mine); rr == nil {
				continue
			}
		}
		if rr.Header().Ttl != ttl {
			rr = dns.Copy(rr)
			rr.Header().Ttl = ttl
		}
		answer = append(answer, rr)
	}
	r.Answer = answer
	r.Ns = slices.DeleteFunc(slices.Clone(r.Ns), carriesAddress)
	r.Extra = slices.DeleteFunc(r.Extra, carriesAddress) // relay's own slice
}

// carriesAddress tells whether a client could take an address from the record.
func carriesAddress(rr dns.RR) bool {
	switch rr := rr.(type) {
	case *dns.A, *dns.AAAA:
		return true
	case *dns.HTTPS:
		return hasHints(&rr.SVCB)
	case *dns.SVCB:
		return hasHints(rr)
	}
	return false
}

// Behind puts the reply for another name behind the CNAMEs by which the question leads to it.
func Behind(r *dns.Msg, q wire.Question, to fqdn.Name, alias *dns.Msg) *dns.Msg {
	var chain []dns.RR
	for at := q.Name; at != to; {
		i := slices.IndexFunc(alias.Answer, func(rr dns.RR) bool {
			owner, err := fqdn.ParseName(rr.Header().Name)
			return err == nil && owner == at && rr.Header().Rrtype == dns.TypeCNAME
		})
		if i < 0 || len(chain) > wire.MaxChain {
			break
		}
		c := dns.Copy(alias.Answer[i]).(*dns.CNAME)
		if at == q.Name {
			c.Hdr.Name = r.Question[0].Name
		}
		for _, of := range r.Answer {
			c.Hdr.Ttl = min(wire.ValidTTL(c.Hdr.Ttl), of.Header().Ttl)
		}
		next, err := fqdn.ParseName(c.Target)
		if chain = append(chain, c); err != nil {
			break
		}
		at = next
	}
	r.Answer = append(chain, r.Answer...)
	return r
}

// Encode returns the reply on the wire, truncated to the client's size. A client with a cookie has
// room for it left.
func Encode(query, r *dns.Msg, tcp bool) []byte {
	most := dns.MaxMsgSize
	if !tcp {
		most = dns.MinMsgSize
		if opt := query.IsEdns0(); opt != nil {
			most = wire.UDPLimit(opt.UDPSize())
		}
	}
	truncate(query, r, most)
	r.Compress = true
	wire, err := r.Pack()
	if err == nil && len(wire) <= most {
		return wire
	}
	// A record that cannot be written: an honest failure beats silence.
	if wire, err = Error(query, dns.RcodeServerFailure).Pack(); err != nil {
		return nil
	}
	return wire
}

// truncate truncates the reply, with room for the cookie of the query.
func truncate(query, r *dns.Msg, most int) {
	asked, opt := query.IsEdns0(), r.IsEdns0()
	if asked == nil || opt == nil || !slices.ContainsFunc(asked.Option, func(o dns.EDNS0) bool { return o.Option() == dns.EDNS0COOKIE }) {
		r.Truncate(most)
		return
	}
	options := opt.Option
	opt.Option = append(slices.Clip(options), &dns.EDNS0_LOCAL{Data: make([]byte, wire.CookieRoom-4)})
	r.Truncate(most)
	opt.Option = options
}
