package proxy

import (
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/proxy/wire"
)

// handle returns the reply to a packet that IsQuery, nil for silence. It does
// not keep the packet.
func (s *Server) handle(packet []byte, who asker, tcp bool) (reply []byte) {
	return s.handleGiven(packet, who, tcp, nil)
}

// handleGiven is handle for a query that was on the short way before, if from is
// not nil.
func (s *Server) handleGiven(packet []byte, who asker, tcp bool, from *begun) (reply []byte) {
	defer func() {
		if r := recover(); r != nil {
			s.fault("a query", r)
			reply = wire.ErrorReply(packet, dns.RcodeServerFailure)
		}
	}()
	return s.answer(packet, who, tcp, from)
}

// begun is what a query brings from the short way.
type begun struct {
	at    time.Time // when it arrived
	spent stages
	got   *outcome // what the upstreams say
}

// answer is handle without a net.
func (s *Server) answer(packet []byte, who asker, tcp bool, from *begun) []byte {
	if from == nil {
		from = &begun{at: s.now()}
	}
	query := new(dns.Msg)
	if err := query.Unpack(packet); err != nil {
		s.stats.Malformed.Add(1)
		return wire.ErrorReply(packet, dns.RcodeFormatError)
	}
	if !who.known {
		return wire.ErrorReply(packet, dns.RcodeRefused)
	}
	s.stats.Queries.Add(1)
	if tcp {
		s.stats.QueriesTCP.Add(1)
	}
	if rcode, refused := refusal(query); refused {
		return pack(query, respond(query, rcode), tcp)
	}
	q, ok := readQuestion(query)
	switch {
	case !ok:
		return wire.ErrorReply(packet, dns.RcodeFormatError)
	case q.Name == aliveName:
		return s.alive(query, who, tcp)
	case aboutServer(q):
		return pack(query, respond(query, dns.RcodeRefused), tcp)
	}
	s.step("read")
	setup := s.setup.Load()
	if who.view == nil {
		return s.plain(packet, query, q, who, setup, tcp, from.got)
	}
	t := &turn{s: s, setup: setup, view: who.view, snap: who.snap, query: query, q: q, given: from.got, spent: from.spent}
	t.rec = audit.Record{Pod: who.view.Pod.PodRef, Workload: who.view.Workload, Address: who.addr, Name: q.Name, Type: q.Type, Class: q.Class, TCP: tcp}
	r := t.run()
	s.step("decided")
	wire := pack(query, r, tcp)
	t.finish(r, from.at)
	s.step("finished")
	if !tcp && t.single {
		s.remember(packet, wire, t.answer, who, setup, t)
	}
	return wire
}

// plain answers someone whom no policy selects: nothing is decided, granted or logged.
func (s *Server) plain(packet []byte, query *dns.Msg, q wire.Question, who asker, setup *setup, tcp bool, given *outcome) []byte {
	got, err := setup.keeper.answerGiven(queryOf(q, query), given, false)
	if err != nil {
		return pack(query, respond(query, dns.RcodeServerFailure), tcp)
	}
	wire := pack(query, relay(query, got.msg), tcp)
	if !tcp {
		s.remember(packet, wire, got, who, setup, nil)
	}
	return wire
}

// aliveName is the name that the proxy answers itself: alive.namegate.invalid
// (RFC 6761 §6.4 keeps invalid free of real names).
var aliveName = label("alive") + label("namegate") + label("invalid")

// aliveText is what it answers.
const aliveText = "serving"

// alive answers the reserved name with a TXT record; other types have none.
// Silence, where a query has been under way for longer than any may be.
func (s *Server) alive(query *dns.Msg, who asker, tcp bool) []byte {
	if s.stuck() {
		return nil
	}
	r := respond(query, dns.RcodeSuccess)
	r.Authoritative = true
	if q := query.Question[0]; q.Qtype == dns.TypeTXT {
		r.Answer = []dns.RR{&dns.TXT{
			Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeTXT, Class: q.Qclass},
			Txt: []string{aliveText},
		}}
	}
	if who.node {
		s.stats.SelfQueries.Add(1)
	}
	return pack(query, r, tcp)
}

// stuck tells whether the proxy hangs, by the oldest query under way.
func (s *Server) stuck() bool {
	return s.clients.Watchdog.Hung(s.elapsed(), longest(s.setup.Load().config))
}
