package answer

import (
	"slices"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/wire"
)

// maxOptions bounds the client's options that are passed on, in bytes: with the
// longest name the query still fits into the least datagram that IPv6 must carry.
const maxOptions = 512

// ReadQuery returns the query in a client's message.
func ReadQuery(q wire.Question, m *dns.Msg) wire.Query {
	a := wire.Query{Question: q, Flags: wire.RD.If(m.RecursionDesired) | wire.CD.If(m.CheckingDisabled) | wire.AD.If(m.AuthenticatedData)}
	if opt := m.IsEdns0(); opt != nil {
		a.Flags |= wire.DO.If(opt.Do())
		a.Options = passedOn(opt)
	}
	return a
}

// endsHere tells whether an EDNS option is between two neighbours and so ends at
// the proxy: a cookie (RFC 7873 §5.2), keepalive (RFC 7828 §3.1), padding (RFC
// 7830 §3).
func endsHere(option uint16) bool {
	return option == dns.EDNS0COOKIE || option == dns.EDNS0TCPKEEPALIVE || option == dns.EDNS0PADDING
}

// passedOn returns the options of a client's OPT record that the upstream gets to
// see, on the wire; none if they are too long.
func passedOn(opt *dns.OPT) string {
	if !slices.ContainsFunc(opt.Option, func(o dns.EDNS0) bool { return !endsHere(o.Option()) }) {
		return ""
	}
	only := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
	for _, o := range opt.Option {
		if !endsHere(o.Option()) {
			only.Option = append(only.Option, o)
		}
	}
	b := make([]byte, dns.MinMsgSize+maxOptions)
	n, err := dns.PackRR(only, b, 0, nil, false)
	if err != nil || n-wire.OPTBytes > maxOptions {
		return ""
	}
	return string(b[wire.OPTBytes:n])
}

// ClientSpecific tells whether the answer has an option that is specific to the client.
func ClientSpecific(m *dns.Msg) bool {
	opt := m.IsEdns0()
	return opt != nil && slices.ContainsFunc(opt.Option, func(o dns.EDNS0) bool { return !endsHere(o.Option()) && o.Option() != dns.EDNS0EDE })
}

// withOPT adds an OPT record if the client sent one (RFC 6891 §6.1.1), with the
// upstream's extended errors (RFC 8914), and its answers to the options that were
// passed on.
func withOPT(query, r *dns.Msg, theirs *dns.OPT) *dns.Msg {
	asked := query.IsEdns0()
	if asked == nil {
		if r.Rcode > 0xf {
			r.Rcode = dns.RcodeServerFailure // it takes an OPT to say more
		}
		return r
	}
	opt := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
	opt.SetUDPSize(wire.AdvertisedSize)
	opt.SetDo(asked.Do())
	if theirs != nil {
		passed := slices.ContainsFunc(asked.Option, func(o dns.EDNS0) bool { return !endsHere(o.Option()) })
		for _, o := range theirs.Option {
			if o.Option() == dns.EDNS0EDE || passed && !endsHere(o.Option()) {
				opt.Option = append(opt.Option, o)
			}
		}
	}
	r.Extra = append(r.Extra, opt)
	return r
}
