// Package wiretest writes DNS messages from short texts, for tests.
package wiretest

import (
	"strings"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/testkit/fatal"
)

// Query asks for a name.
func Query(qname string, qtype uint16) *dns.Msg {
	return new(dns.Msg).SetQuestion(dns.Fqdn(qname), qtype)
}

// Answer is the reply to a query as a parser reads it, with what Fill takes.
func Answer(t fatal.T, q *dns.Msg, texts ...string) *dns.Msg {
	t.Helper()
	m := new(dns.Msg).SetReply(q)
	fatal.If(t, Fill(m, texts...))
	return Parsed(t, Packed(t, m))
}

// Fill adds records in zone-file form to a message. "+" puts a record into the additional
// section, "~" into the authority section. A text in capitals is the response code.
func Fill(m *dns.Msg, texts ...string) error {
	for _, text := range texts {
		if rcode, ok := dns.StringToRcode[text]; ok {
			m.Rcode = rcode
			continue
		}
		section := &m.Answer
		switch text[0] {
		case '+':
			section = &m.Extra
		case '~':
			section = &m.Ns
		}
		rr, err := dns.NewRR(strings.TrimLeft(text, "+~"))
		if err != nil {
			return err
		}
		*section = append(*section, rr)
	}
	return nil
}

// Packed is a message on the wire.
func Packed(t fatal.T, m *dns.Msg) []byte {
	t.Helper()
	packet, err := m.Pack()
	fatal.If(t, err)
	return packet
}

// Parsed reads a message.
func Parsed(t fatal.T, packet []byte) *dns.Msg {
	t.Helper()
	m := new(dns.Msg)
	fatal.If(t, m.Unpack(packet))
	return m
}
