package proxy

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// TestQuickReadsWhatTheParserReads: what is taken for plain has the key, the size and
// the flags that the long way finds in it.
func TestQuickReadsWhatTheParserReads(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	plain := 0
	for range 200_000 {
		packet := randomPacket(t, r)
		if !isQuery(packet) {
			continue
		}
		q, ok := readQuick(packet)
		if !ok {
			continue
		}
		m := new(dns.Msg)
		if err := m.Unpack(packet); err != nil {
			t.Fatalf("%x is plain, and broken: %v", packet, err)
		}
		if _, refused := refusal(m); refused {
			continue // no answer is kept under such a key
		}
		plain++
		question, ok := readQuestion(m)
		if !ok {
			t.Fatalf("%x is plain, and has no question", packet)
		}
		a := askOf(question, m)
		if got, want := string(q.appendKey(nil)), string(a.appendKey(nil)); got != want {
			t.Fatalf("%x has the key %x, the long way's is %x", packet, got, want)
		}
		most := dns.MinMsgSize
		opt := m.IsEdns0()
		if opt != nil {
			most = udpLimit(opt.UDPSize())
		}
		if a.options != "" || q.edns != (opt != nil) || q.most != most || q.qtype() != question.Type {
			t.Fatalf("%x: EDNS %v, at most %d, type %d; options %x\n%v", packet, q.edns, q.most, q.qtype(), a.options, m)
		}
	}
	if plain < 20_000 {
		t.Errorf("only %d were plain", plain)
	}
}

func randomPacket(t *testing.T, r *rand.Rand) []byte {
	names := []string{".", "a.test.", "WwW.Example.ORG.", `a\.b.test.`, `\000\255.test.`, strings.Repeat("a23456789.", 25) + "x.", strings.Repeat("x", 63) + ".test."}
	m := newQuery(names[r.IntN(len(names))], uint16(r.IntN(70)))
	m.RecursionDesired, m.CheckingDisabled, m.AuthenticatedData = r.IntN(2) == 0, r.IntN(4) == 0, r.IntN(4) == 0
	if r.IntN(8) == 0 {
		m.Question[0].Qclass = uint16(r.IntN(5))
	}
	if r.IntN(2) == 0 {
		m.SetEdns0(uint16(r.IntN(6000)), r.IntN(2) == 0)
	}
	packet := packed(t, m)
	if opt := m.IsEdns0(); opt != nil && r.IntN(2) == 0 {
		code := []uint16{dns.EDNS0COOKIE, dns.EDNS0PADDING, dns.EDNS0TCPKEEPALIVE, dns.EDNS0NSID, dns.EDNS0SUBNET, uint16(r.IntN(70))}[r.IntN(6)]
		data := make([]byte, r.IntN(5))
		packet = binary.BigEndian.AppendUint16(packet, code)
		packet = binary.BigEndian.AppendUint16(packet, uint16(len(data)))
		packet = append(packet, data...)
		binary.BigEndian.PutUint16(packet[len(packet)-6-len(data):], uint16(4+len(data)))
	}
	switch r.IntN(6) {
	case 0:
		packet[r.IntN(len(packet))] = byte(r.Uint32())
	case 1:
		packet = packet[:headerBytes+r.IntN(len(packet)-headerBytes)]
	case 2:
		packet = append(packet, byte(r.Uint32()))
	}
	return packet
}

// TestQuickLeavesToTheLongWay what its answer would depend on.
func TestQuickLeavesToTheLongWay(t *testing.T) {
	base := func(form func(*dns.Msg)) []byte {
		m := newQuery("a.test", dns.TypeA)
		m.SetEdns0(1232, false)
		form(m)
		return packed(t, m)
	}
	option := func(o dns.EDNS0) func(*dns.Msg) { return func(m *dns.Msg) { m.IsEdns0().Option = []dns.EDNS0{o} } }
	extended := base(func(*dns.Msg) {})
	extended[len(extended)-6] = 1
	for what, packet := range map[string][]byte{
		"two questions":   base(func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }),
		"an answer":       base(func(m *dns.Msg) { m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: "a.", Rrtype: dns.TypeA}}} }),
		"another opcode":  base(func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }),
		"TC":              base(func(m *dns.Msg) { m.Truncated = true }),
		"Z":               base(func(m *dns.Msg) { m.Zero = true }),
		"two OPT":         base(func(m *dns.Msg) { m.Extra = append(m.Extra, m.Extra[0]) }),
		"EDNS version 1":  base(func(m *dns.Msg) { m.IsEdns0().SetVersion(1) }),
		"an EDNS flag":    base(func(m *dns.Msg) { m.IsEdns0().Hdr.Ttl |= 1 }),
		"extended rcode":  extended,
		"NSID":            base(option(&dns.EDNS0_NSID{Code: dns.EDNS0NSID})),
		"subnet":          base(option(&dns.EDNS0_SUBNET{Code: dns.EDNS0SUBNET, Family: 1, Address: mustAddr("192.0.2.0").AsSlice()})),
		"keepalive":       base(option(&dns.EDNS0_TCP_KEEPALIVE{Code: dns.EDNS0TCPKEEPALIVE})),
		"trailing bytes":  append(base(func(*dns.Msg) {}), 0),
		"a pointer":       []byte("\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c\x00\x01\x00\x01"),
		"a name too long": []byte("\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" + strings.Repeat("\x3f"+strings.Repeat("x", 63), 4) + "\x00\x00\x01\x00\x01"),
		"no end":          []byte("\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a"),
	} {
		if _, ok := readQuick(packet); ok {
			t.Errorf("%s is taken for plain", what)
		}
	}
	for what, packet := range map[string][]byte{
		"EDNS": base(func(*dns.Msg) {}), "no EDNS": packed(t, newQuery("a.test", dns.TypeA)), "the root": packed(t, newQuery(".", dns.TypeNS)),
		"a cookie": base(option(&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0011223344556677"})),
		"padding":  base(option(&dns.EDNS0_PADDING{Padding: make([]byte, 100)})),
		"255":      packed(t, newQuery(strings.Repeat(strings.Repeat("x", 63)+".", 3)+strings.Repeat("y", 61)+".", dns.TypeA)),
	} {
		if _, ok := readQuick(packet); !ok {
			t.Errorf("%s is not taken for plain", what)
		}
	}
}
