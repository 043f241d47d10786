package wire

import (
	"bytes"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/wiretest"
)

// The words of the tests.
var (
	newQuery = wiretest.Query
	packed   = wiretest.Packed
)

// TestParseQueryLeavesToTheParser queries whose answer depends on more.
func TestParseQueryLeavesToTheParser(t *testing.T) {
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
		"subnet":          base(option(&dns.EDNS0_SUBNET{Code: dns.EDNS0SUBNET, Family: 1, Address: []byte{192, 0, 2, 0}})),
		"keepalive":       base(option(&dns.EDNS0_TCP_KEEPALIVE{Code: dns.EDNS0TCPKEEPALIVE})),
		"trailing bytes":  append(base(func(*dns.Msg) {}), 0),
		"a pointer":       []byte("\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c\x00\x01\x00\x01"),
		"a name too long": []byte("\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" + strings.Repeat("\x3f"+strings.Repeat("x", 63), 4) + "\x00\x00\x01\x00\x01"),
		"no end":          []byte("\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a"),
	} {
		if _, ok := ParseQuery(packet); ok {
			t.Errorf("%s is taken for plain", what)
		}
	}
	for what, packet := range map[string][]byte{
		"EDNS": base(func(*dns.Msg) {}), "no EDNS": packed(t, newQuery("a.test", dns.TypeA)), "the root": packed(t, newQuery(".", dns.TypeNS)),
		"a cookie": base(option(&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0011223344556677"})),
		"padding":  base(option(&dns.EDNS0_PADDING{Padding: make([]byte, 100)})),
		"255":      packed(t, newQuery(strings.Repeat(strings.Repeat("x", 63)+".", 3)+strings.Repeat("y", 61)+".", dns.TypeA)),
	} {
		if _, ok := ParseQuery(packet); !ok {
			t.Errorf("%s is not taken for plain", what)
		}
	}
}

func TestEchoes(t *testing.T) {
	a := Query{Question: Question{Name: "\x03www\x07example\x03org", Type: dns.TypeA, Class: dns.ClassINET}, Flags: RD}
	query, end := a.Pack(7), a.QuestionEnd()
	reply := func(edit func(b []byte)) []byte {
		b := append([]byte(nil), query...)
		b[2] |= 0x80
		edit(b)
		return b
	}
	for _, tt := range []struct {
		name string
		edit func(b []byte)
		want bool
	}{
		{"the same", func([]byte) {}, true},
		{"another case", func(b []byte) { b[HeaderBytes+1] ^= 0x20 }, true},
		{"another letter", func(b []byte) { b[HeaderBytes+1]++ }, false},
		{"another id", func(b []byte) { b[1]++ }, false},
		{"not a response", func(b []byte) { b[2] &^= 0x80 }, false},
		{"no question", func(b []byte) { b[5] = 0 }, false},
		{"256 questions more", func(b []byte) { b[4] = 1 }, false},
		{"a label's length", func(b []byte) { b[HeaderBytes]++ }, false},
		{"another type", func(b []byte) { b[end-3]++ }, false},
		{"another class", func(b []byte) { b[end-1]++ }, false},
	} {
		diff.Equal(t, tt.want, echoes(query, reply(tt.edit), end), tt.name)
	}
	if echoes(query, reply(func([]byte) {})[:end-1], end) {
		t.Error("a packet shorter than the question echoes it")
	}
}

func TestErrorReply(t *testing.T) {
	m := newQuery("www.example.org", dns.TypeA)
	m.SetEdns0(1232, true)
	packet, err := m.Pack()
	fatal.If(t, err)
	r := new(dns.Msg)
	fatal.If(t, r.Unpack(ErrorReply(packet, dns.RcodeRefused)))
	if r.Id != m.Id || !r.Response || r.Rcode != dns.RcodeRefused || len(r.Question) != 1 || r.Question[0] != m.Question[0] || !r.RecursionDesired || len(r.Extra) != 0 {
		t.Errorf("reply %v", r)
	}
	for name, broken := range map[string][]byte{
		"a header alone":      packet[:HeaderBytes],
		"a question cut off":  packet[:HeaderBytes+6],
		"no type":             packet[:HeaderBytes+17],
		"a pointer":           append(append([]byte{}, packet[:HeaderBytes]...), 0xc0, 12, 0, 1, 0, 1),
		"two questions":       append([]byte{0, 1, 1, 0, 0, 2}, packet[6:]...),
		"a label beyond them": append(append([]byte{}, packet[:HeaderBytes]...), 60, 'a'),
	} {
		out := ErrorReply(broken, dns.RcodeFormatError)
		if len(out) != HeaderBytes || r.Unpack(out) != nil || r.Rcode != dns.RcodeFormatError || !bytes.Equal(out[4:], make([]byte, 8)) {
			t.Errorf("%s: % x", name, out)
		}
	}
}
