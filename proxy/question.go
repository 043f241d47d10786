package proxy

import (
	"slices"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/wire"
)

// readQuestion reads the only question of a message. Not ok: there is none, or
// several, or its name is none that can stand on the wire.
func readQuestion(m *dns.Msg) (q wire.Question, ok bool) {
	if len(m.Question) != 1 {
		return q, false
	}
	n, err := fqdn.ParseName(m.Question[0].Name)
	if err != nil {
		return q, false
	}
	return wire.Question{Name: n, Type: m.Question[0].Qtype, Class: m.Question[0].Qclass}, true
}

// presentation returns the name as the dns package spells it.
func presentation(n fqdn.Name) string {
	if n == "" {
		return "."
	}
	return n.String() + "."
}

// serverNames are the names by which servers tell about themselves (RFC 4892).
var serverNames = []fqdn.Name{
	label("version") + label("bind"), label("version") + label("server"),
	label("hostname") + label("bind"), label("id") + label("server"), label("authors") + label("bind"),
}

// aboutServer tells whether the question is about the server that answers: nobody
// is told, and nobody else asked.
func aboutServer(q wire.Question) bool {
	return q.Class == dns.ClassCHAOS && slices.Contains(serverNames, q.Name)
}

// refusal returns the response code for a query that is not passed on, and
// whether it is one of those.
func refusal(m *dns.Msg) (rcode int, refused bool) {
	switch {
	case m.Opcode != dns.OpcodeQuery:
		return dns.RcodeNotImplemented, true
	case len(m.Question) != 1:
		return dns.RcodeFormatError, true
	}
	switch q := m.Question[0]; q.Qtype {
	case dns.TypeAXFR, dns.TypeIXFR:
		// A transfer holds a zone's addresses and grants none of them.
		return dns.RcodeRefused, true
	case dns.TypeNone, dns.TypeOPT, dns.TypeTSIG:
		return dns.RcodeFormatError, true
	case dns.TypeTKEY:
		return dns.RcodeNotImplemented, true
	}
	if opt := m.IsEdns0(); opt != nil && opt.Version() != 0 {
		return dns.RcodeBadVers, true
	}
	return 0, false
}
