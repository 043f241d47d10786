package scenarios

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// probe is a query of the DNS and EDNS compliance tests that the Internet Systems Consortium
// published (genreport, ednscomp.isc.org; RFC 8906 §8 has most of them), with its
// names, and the reply that the tests expect of a recursive server. The probes below
// "further" are of RFC 6891, RFC 1035 and RFC 9619.
type probe struct {
	name   string
	header dns.MsgHdr // its flags and opcode; RD is always set in a QUERY
	none   bool       // no question
	qtype  uint16     // SOA by default
	edns   *opt
	raw    func(wire []byte) []byte // changes the packet

	rcode     int
	noAnswer  bool // NOERROR without the records of the type
	truncated bool // over UDP
	silent    bool // no reply
}

// opt is the OPT record of a probe.
type opt struct {
	size    uint16 // 4096 by default
	version uint8
	flags   uint16 // DO is 0x8000
	options []dns.EDNS0
}

// The options of the probes. Number 100 is not assigned.
var (
	optUnknown = &dns.EDNS0_LOCAL{Code: 100}
	optNSID    = &dns.EDNS0_NSID{Code: dns.EDNS0NSID}
	optSubnet  = &dns.EDNS0_SUBNET{Code: dns.EDNS0SUBNET, Family: 1, Address: net.IPv4zero}
	optExpire  = &dns.EDNS0_EXPIRE{Code: dns.EDNS0EXPIRE, Empty: true}
	optCookie  = &dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0102030405060708"}
)

func options(o ...dns.EDNS0) []dns.EDNS0 { return o }

const flagDO = 0x8000

var probes = []probe{
	{name: "dns"},
	{name: "aa", header: dns.MsgHdr{Authoritative: true}},
	{name: "ad", header: dns.MsgHdr{AuthenticatedData: true}},
	{name: "cd", header: dns.MsgHdr{CheckingDisabled: true}},
	{name: "ra", header: dns.MsgHdr{RecursionAvailable: true}},
	{name: "tc", header: dns.MsgHdr{Truncated: true}},
	{name: "zflag", header: dns.MsgHdr{Zero: true}},
	{name: "opcode", header: dns.MsgHdr{Opcode: 15}, none: true, rcode: dns.RcodeNotImplemented},
	{name: "opcodeflg", none: true, rcode: dns.RcodeNotImplemented, header: dns.MsgHdr{Opcode: 15, Truncated: true, RecursionDesired: true,
		RecursionAvailable: true, CheckingDisabled: true, AuthenticatedData: true, Authoritative: true, Zero: true}},
	{name: "type666", qtype: 666, noAnswer: true},
	{name: "edns", edns: &opt{}},
	{name: "edns1", edns: &opt{version: 1}, rcode: dns.RcodeBadVers},
	{name: "edns@512", qtype: dns.TypeDNSKEY, edns: &opt{size: 512, flags: flagDO}, truncated: true},
	{name: "ednsopt", edns: &opt{options: options(optUnknown)}},
	{name: "edns1opt", edns: &opt{version: 1, options: options(optUnknown)}, rcode: dns.RcodeBadVers},
	{name: "do", edns: &opt{flags: flagDO}},
	{name: "docd", header: dns.MsgHdr{CheckingDisabled: true}, edns: &opt{flags: flagDO}},
	{name: "edns1do", edns: &opt{version: 1, flags: flagDO}, rcode: dns.RcodeBadVers},
	{name: "ednsflags", edns: &opt{flags: 0x0080}},
	{name: "optlist", edns: &opt{options: options(optNSID, optSubnet, optExpire, optCookie)}},
	{name: "ednsnsid", edns: &opt{options: options(optNSID)}},
	{name: "ednscookie", edns: &opt{options: options(optCookie)}},
	{name: "ednsexpire", edns: &opt{options: options(optExpire)}},
	{name: "ednssubnet", edns: &opt{options: options(optSubnet)}},
	{name: "edns1nsid", edns: &opt{version: 1, options: options(optNSID)}, rcode: dns.RcodeBadVers},
	{name: "edns1cookie", edns: &opt{version: 1, options: options(optCookie)}, rcode: dns.RcodeBadVers},
	{name: "edns1expire", edns: &opt{version: 1, options: options(optExpire)}, rcode: dns.RcodeBadVers},
	{name: "edns1subnet", edns: &opt{version: 1, options: options(optSubnet)}, rcode: dns.RcodeBadVers},
	{name: "bind11", edns: &opt{flags: flagDO, options: options(optCookie)}},
	{name: "dig11", header: dns.MsgHdr{AuthenticatedData: true}, edns: &opt{options: options(optCookie)}},

	{name: "further: edns100", edns: &opt{version: 100}, rcode: dns.RcodeBadVers},
	{name: "further: edns255 with every flag and an option", edns: &opt{version: 255, flags: 0xffff, options: options(optUnknown)}, rcode: dns.RcodeBadVers},
	{name: "further: every flag", edns: &opt{flags: 0xffff}},
	{name: "further: a size below 512", qtype: dns.TypeDNSKEY, edns: &opt{size: 1}, truncated: true},
	{name: "further: no EDNS and a large answer", qtype: dns.TypeDNSKEY, truncated: true},
	{name: "further: IQUERY", header: dns.MsgHdr{Opcode: dns.OpcodeIQuery}, rcode: dns.RcodeNotImplemented},
	{name: "further: STATUS", header: dns.MsgHdr{Opcode: dns.OpcodeStatus}, none: true, rcode: dns.RcodeNotImplemented},
	{name: "further: NOTIFY", header: dns.MsgHdr{Opcode: dns.OpcodeNotify, Authoritative: true}, rcode: dns.RcodeNotImplemented},
	{name: "further: UPDATE", header: dns.MsgHdr{Opcode: dns.OpcodeUpdate}, rcode: dns.RcodeNotImplemented},
	{name: "further: DSO", header: dns.MsgHdr{Opcode: 6}, none: true, rcode: dns.RcodeNotImplemented},
	{name: "further: an opcode with EDNS", header: dns.MsgHdr{Opcode: 15}, none: true, edns: &opt{}, rcode: dns.RcodeNotImplemented},
	{name: "further: no question", none: true, rcode: dns.RcodeFormatError},
	{name: "further: no question, EDNS", none: true, edns: &opt{}, rcode: dns.RcodeFormatError},
	{name: "further: two OPT records", edns: &opt{}, raw: twoOPT, rcode: dns.RcodeFormatError},
	{name: "further: an option that is longer than the record", edns: &opt{options: options(optUnknown)}, raw: longOption, rcode: dns.RcodeFormatError},
	{name: "further: two questions", raw: twoQuestions, rcode: dns.RcodeFormatError},
	{name: "further: a cut question", raw: func(b []byte) []byte { return b[:len(b)-3] }, rcode: dns.RcodeFormatError},
	{name: "further: a cut NOTIFY", header: dns.MsgHdr{Opcode: dns.OpcodeNotify}, raw: func(b []byte) []byte { return b[:len(b)-3] }, rcode: dns.RcodeFormatError},
	{name: "further: a response", header: dns.MsgHdr{Response: true}, silent: true},
	{name: "further: a cut header", raw: func(b []byte) []byte { return b[:11] }, silent: true},
}

// optBytes is the length of an OPT record without options.
const optBytes = 11

func twoOPT(b []byte) []byte {
	b[11]++
	return append(b, b[len(b)-optBytes:]...)
}

func longOption(b []byte) []byte {
	b[len(b)-1] = 9
	return b
}

func twoQuestions(b []byte) []byte {
	b[5]++
	return append(b, b[12:]...)
}

// query is the packet of a probe.
func (p probe) query() *dns.Msg {
	q := &dns.Msg{MsgHdr: p.header}
	q.Id = dns.Id()
	q.RecursionDesired = q.RecursionDesired || q.Opcode == dns.OpcodeQuery
	if !p.none {
		q.Question = []dns.Question{{Name: complianceZone, Qtype: p.qtype, Qclass: dns.ClassINET}}
		if p.qtype == dns.TypeNone {
			q.Question[0].Qtype = dns.TypeSOA
		}
	}
	if p.edns != nil {
		o := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}, Option: p.edns.options}
		o.SetUDPSize(p.edns.size)
		if p.edns.size == 0 {
			o.SetUDPSize(4096)
		}
		o.SetVersion(p.edns.version)
		o.Hdr.Ttl |= uint32(p.edns.flags)
		q.Extra = append(q.Extra, o)
	}
	return q
}

// sent sends the probe's packet and returns the reply, nil for silence.
func (p probe) sent(t *testing.T, pod *lab.Pod, network string, q *dns.Msg) (r *dns.Msg, size int) {
	t.Helper()
	wire, err := q.Pack()
	fatal.If(t, err)
	if p.raw != nil {
		wire = p.raw(wire)
	}
	c, err := pod.Dial(network, netip.AddrPortFrom(lab.Resolver4, 53).String(), lab.Limit)
	fatal.If(t, err)
	defer c.Close()
	patience := lab.Limit
	if p.silent {
		patience = lab.Patience
	}
	fatal.If(t, c.SetDeadline(time.Now().Add(patience)))
	conn := &dns.Conn{Conn: c, UDPSize: dns.MaxMsgSize}
	_, err = conn.Write(wire)
	fatal.If(t, err)
	buf := make([]byte, dns.MaxMsgSize)
	n, err := conn.Read(buf)
	if err != nil {
		if !p.silent {
			t.Fatalf("no reply: %v", err)
		}
		return nil, 0
	}
	r = new(dns.Msg)
	if err := r.Unpack(buf[:n]); err != nil {
		t.Fatalf("the reply cannot be read: %v: %x", err, buf[:n])
	}
	return r, n
}

// faults are what the compliance tests report of a reply.
func (p probe) faults(q, r *dns.Msg, size int, tcp bool) (all []string) {
	is := func(wrong bool, what string) {
		if wrong {
			all = append(all, what)
		}
	}
	isQuery := q.Opcode == dns.OpcodeQuery
	rcode, theirs := r.Rcode, r.IsEdns0()
	is(rcode != p.rcode, "rcode "+dns.RcodeToString[rcode]+", want "+dns.RcodeToString[p.rcode])
	is(!r.Response || r.Id != q.Id, "no response to the query")
	is(r.Opcode != q.Opcode, "another opcode")
	is(p.raw == nil && isQuery && len(r.Question) != len(q.Question), "question")
	is(len(r.Question) > 0 && len(q.Question) > 0 && r.Question[0] != q.Question[0], "mismatch")
	is(!isQuery && len(r.Answer)+len(r.Ns) > 0, "records in a reply to an unknown opcode")

	of := p.qtype
	if of == dns.TypeNone {
		of = dns.TypeSOA
	}
	found := 0
	for _, rr := range r.Answer {
		if rr.Header().Rrtype == of {
			found++
		}
	}
	cut := p.truncated && !tcp
	want := p.rcode == dns.RcodeSuccess && !p.noAnswer
	is(want && !cut && found == 0, "no answer")
	is(!want && found > 0, "an answer")
	is(r.Truncated != cut, "tc")
	limit := dns.MinMsgSize
	if p.edns != nil {
		limit = max(limit, int(p.edns.size))
		if p.edns.size == 0 {
			limit = 4096
		}
	}
	is(!tcp && size > limit, "too big")

	is(r.Authoritative, "aa")
	is(isQuery && !r.RecursionAvailable && rcode != dns.RcodeFormatError, "nora")
	is(!isQuery && r.RecursionAvailable, "ra")
	is(isQuery && !r.RecursionDesired, "nord")
	is(r.AuthenticatedData && (!isQuery || !q.AuthenticatedData && (p.edns == nil || p.edns.flags&flagDO == 0)), "ad")
	is(want && !r.AuthenticatedData && q.AuthenticatedData, "noad")
	is(r.CheckingDisabled && (!isQuery || !q.CheckingDisabled), "cd")
	is(isQuery && q.CheckingDisabled && !r.CheckingDisabled, "nocd")
	is(r.Zero, "z")

	is(theirs == nil && p.edns != nil && rcode != dns.RcodeFormatError, "noopt")
	is(theirs != nil && p.edns == nil, "opt")
	if theirs != nil {
		is(theirs.Version() != 0, "version not zero")
		is(theirs.Hdr.Ttl&0x7fff != 0, "mbz")
		is(p.edns != nil && theirs.Do() != (p.edns.flags&flagDO != 0), "do")
		for _, o := range theirs.Option {
			is(o.Option() == optUnknown.Code, "echoed")
		}
	}
	return all
}

// complianceZone is the zone of the probes.
const complianceZone = "compliance.test."

// complianceAnswer is the upstream's: a recursive server that validates, and sets AD in
// every response.
func complianceAnswer(q *dns.Msg) *dns.Msg {
	r := new(dns.Msg).SetReply(q)
	r.RecursionAvailable, r.AuthenticatedData = true, true
	say := func(text string) {
		rr, err := dns.NewRR(complianceZone + " 3600 IN " + text)
		if err != nil {
			panic(err)
		}
		r.Answer = append(r.Answer, rr)
	}
	do := false
	if o := q.IsEdns0(); o != nil {
		do = o.Do()
		r.SetEdns0(1232, do)
	}
	switch q.Question[0].Qtype {
	case dns.TypeSOA:
		say("SOA ns.compliance.test. admin.compliance.test. 1 7200 3600 1209600 3600")
		if do {
			say("RRSIG SOA 13 2 3600 20400101000000 20200101000000 1 compliance.test. c2lnbmF0dXJl")
		}
	case dns.TypeDNSKEY:
		for i := range 3 {
			say("DNSKEY 257 3 8 " + strings.Repeat(string(rune('A'+i)), 340))
		}
	}
	return r
}

// TestCompliance sends the compliance tests' probes to the endpoint over UDP and TCP, each
// twice: the second reply can be one from the cache.
func TestCompliance(t *testing.T) {
	t.Parallel()
	s := newStage(t, lab.Routed)
	s.zone.say(complianceZone, complianceAnswer)
	s.start(map[string]string{
		"a.yaml":      s.Pod("a").Manifest("shop", "a", nil),
		"policy.yaml": policy("clients", clientsPolicy),
	})
	for _, p := range probes {
		for _, network := range []string{"udp", "tcp"} {
			t.Run(p.name+" over "+network, func(t *testing.T) {
				for _, round := range []string{"first", "second"} {
					q := p.query()
					r, size := p.sent(t, s.Pod("a"), network, q)
					switch {
					case (r == nil) != p.silent:
						t.Fatalf("%s: got\n%v", round, r)
					case r != nil:
						if all := p.faults(q, r, size, network == "tcp"); len(all) > 0 {
							t.Errorf("%s: %s\nasked\n%v\ngot\n%v", round, strings.Join(all, ", "), q, r)
						}
					}
				}
			})
		}
	}
}
