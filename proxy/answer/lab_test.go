package answer

import (
	"net/netip"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/fatal"
	"github.com/namegate/namegate/policy/fqdn"
)

func name(t testing.TB, s string) fqdn.Name {
	t.Helper()
	n, err := fqdn.ParseName(s)
	fatal.If(t, err)
	return n
}

func newQuery(qname string, qtype uint16) *dns.Msg {
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn(qname), qtype)
	return m
}

func packed(t testing.TB, m *dns.Msg) []byte {
	t.Helper()
	packet, err := m.Pack()
	fatal.If(t, err)
	return packet
}

func parsed(t testing.TB, packet []byte) *dns.Msg {
	t.Helper()
	m := new(dns.Msg)
	if err := m.Unpack(packet); err != nil {
		t.Fatalf("the message cannot be read: %v\n%x", err, packet)
	}
	return m
}

// message is an honest answer of these records.
func message(t testing.TB, q string, qtype uint16, rrs ...string) *dns.Msg {
	t.Helper()
	r := new(dns.Msg)
	r.SetReply(newQuery(q, qtype))
	for _, text := range rrs {
		rr, err := dns.NewRR(text)
		fatal.If(t, err)
		r.Answer = append(r.Answer, rr)
	}
	return parsed(t, packed(t, r))
}

func mustAddr(s string) netip.Addr { return netip.MustParseAddr(s) }
