package proxy

import (
	"slices"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/answer"
	"github.com/namegate/namegate/proxy/wire"
)

// packetRoom holds nearly every query.
const packetRoom = 512

// request is a client's packet, and the query in it.
type request struct {
	room     [packetRoom]byte
	packet   []byte
	view     wire.QueryView // of the packet, where it is plain
	plain    bool
	query    *dns.Msg // of the packet; nil until it is needed
	question wire.Query
	readable bool   // it has a valid question
	cookie   []byte // of the client, see cookies
	waited   bool   // for the cookie
}

// keep copies the packet.
func (r *request) keep(packet []byte) { r.packet = append(r.room[:0], packet...) }

// setView makes the packet a plain one, whose view v is of another copy.
func (r *request) setView(v *wire.QueryView) {
	r.view, r.plain = *v, true
	r.view.Packet = r.packet
}

// reset drops the references of the request.
func (r *request) reset() {
	r.packet, r.view, r.plain, r.query, r.question, r.cookie, r.waited = nil, wire.QueryView{}, false, nil, wire.Query{}, nil, false
}

// read reads the question, in place where the packet is plain. False: the packet is
// broken.
func (q *query) read() bool {
	r := &q.request
	if !r.plain {
		if v, ok := wire.ParseQuery(r.packet); ok {
			r.setView(&v)
		}
	}
	if r.plain {
		var room [wire.MaxName]byte
		r.question = r.view.Query(fqdn.Name(r.view.AppendName(room[:0])))
		if r.readable = true; q.to.stream() {
			r.view.Limit = dns.MaxMsgSize
		}
		return true
	}
	r.query = new(dns.Msg)
	if r.query.Unpack(r.packet) != nil {
		return false
	}
	var question wire.Question
	if question, r.readable = answer.ReadQuestion(r.query); r.readable {
		r.question = answer.ReadQuery(question, r.query)
	}
	return true
}

// message returns the packet as a message.
func (r *request) message() *dns.Msg {
	if r.query == nil {
		r.query = new(dns.Msg)
		_ = r.query.Unpack(r.packet) // a plain packet can be read
	}
	return r.query
}

// refusal returns the response code for a query that is not passed on, and whether it is
// one.
func (r *request) refusal() (rcode int, refused bool) {
	if !r.plain {
		if rcode, refused := refusal(r.query); refused {
			return rcode, true
		}
	} else if rcode := refusedType(r.question.Type); rcode != dns.RcodeSuccess {
		return rcode, true
	}
	return dns.RcodeRefused, r.readable && aboutServer(r.question.Question)
}

// refusal is that of a message.
func refusal(m *dns.Msg) (rcode int, refused bool) {
	switch {
	case m.Opcode != dns.OpcodeQuery:
		return dns.RcodeNotImplemented, true
	case len(m.Question) != 1:
		return dns.RcodeFormatError, true
	}
	if rcode := refusedType(m.Question[0].Qtype); rcode != dns.RcodeSuccess {
		return rcode, true
	}
	var opts []*dns.OPT
	for _, rr := range m.Extra {
		if opt, ok := rr.(*dns.OPT); ok {
			opts = append(opts, opt)
		}
	}
	switch {
	case len(opts) > 1: // RFC 6891 §6.1.1
		return dns.RcodeFormatError, true
	case len(opts) == 1 && opts[0].Version() != 0:
		return dns.RcodeBadVers, true
	}
	return 0, false
}

// refusedType returns the response code for a question of a type that is not passed on.
func refusedType(qtype uint16) (rcode int) {
	switch qtype {
	case dns.TypeAXFR, dns.TypeIXFR:
		// A transfer holds a zone's addresses and grants none of them.
		return dns.RcodeRefused
	case dns.TypeNone, dns.TypeOPT, dns.TypeTSIG:
		return dns.RcodeFormatError
	case dns.TypeTKEY:
		return dns.RcodeNotImplemented
	}
	return dns.RcodeSuccess
}

// serverNames are the names by which servers tell about themselves (RFC 4892).
var serverNames = []fqdn.Name{
	label("version") + label("bind"), label("version") + label("server"),
	label("hostname") + label("bind"), label("id") + label("server"), label("authors") + label("bind"),
}

// aboutServer tells whether the question is about the server that answers: it is refused,
// and no upstream asked.
func aboutServer(q wire.Question) bool {
	return q.Class == dns.ClassCHAOS && slices.Contains(serverNames, q.Name)
}

// aliveName is the name that the proxy answers itself: alive.namegate.invalid
// (RFC 6761 §6.4 keeps invalid free of real names).
var aliveName = label("alive") + label("namegate") + label("invalid")

// aliveText is the proxy's answer to it.
const aliveText = "serving"

// alive answers the reserved name with a TXT record; other types have none.
// Silence, where a query has been in flight for longer than any may be.
func (q *query) alive() []byte {
	s := q.s
	if s.stuck() {
		return nil
	}
	r := answer.Error(q.message(), dns.RcodeSuccess)
	r.Authoritative = true
	if asked := q.message().Question[0]; asked.Qtype == dns.TypeTXT {
		r.Answer = []dns.RR{&dns.TXT{
			Hdr: dns.RR_Header{Name: asked.Name, Rrtype: dns.TypeTXT, Class: asked.Qclass},
			Txt: []string{aliveText},
		}}
	}
	if q.client.node {
		s.stats.SelfQueries.Add(1)
	}
	return q.encode(r)
}

// stuck tells whether the proxy hangs, by the oldest query in flight.
func (s *Server) stuck() bool {
	return s.clients.Watchdog.Hung(s.elapsed(), longest(s.setup.Load().config))
}
