package proxy

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/answer"
	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/wiretest"
)

// TestQueryViewEqualsTheParser: a plain query is the query, and has the size, that
// the parser finds in it.
func TestQueryViewEqualsTheParser(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	plain := 0
	for range 200_000 {
		packet := randomPacket(t, r)
		if !wire.IsQuery(packet) {
			continue
		}
		q, ok := wire.ParseQuery(packet)
		if !ok {
			continue
		}
		m := new(dns.Msg)
		fatal.If(t, m.Unpack(packet), packet, "plain, and broken")
		if _, refused := refusal(m); refused {
			continue // no answer is kept under such a key
		}
		plain++
		question, ok := answer.ReadQuestion(m)
		if !ok {
			t.Fatalf("%x is plain, and has no question", packet)
		}
		a := answer.ReadQuery(question, m)
		diff.MustEqual(t, a, q.Query(fqdn.Name(q.AppendName(nil))), packet, "the query made anew")
		most := dns.MinMsgSize
		opt := m.IsEdns0()
		if opt != nil {
			most = wire.UDPLimit(opt.UDPSize())
			if slices.ContainsFunc(opt.Option, func(o dns.EDNS0) bool { return o.Option() == dns.EDNS0COOKIE }) {
				most -= wire.CookieRoom
			}
		}
		if a.Options != "" || q.EDNS != (opt != nil) || q.Limit != most || q.Type() != question.Type {
			t.Fatalf("%x: EDNS %v, at most %d, type %d; options %x\n%v", packet, q.EDNS, q.Limit, q.Type(), a.Options, m)
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
		packet = packet[:wire.HeaderBytes+r.IntN(len(packet)-wire.HeaderBytes)]
	case 2:
		packet = append(packet, byte(r.Uint32()))
	}
	return packet
}

// packetSeeds are inputs that reach every step.
func packetSeeds(t testing.TB) (seeds [][]byte) {
	const q = "www.example.org."
	answers := map[string][]byte{
		"A":        tailOf(t, 0, q+" 300 IN A 192.0.2.1"),
		"rotating": tailOf(t, 0, q+" 60 IN A 192.0.2.1", q+" 5 IN A 192.0.2.2", q+" 7200 IN A 203.0.113.250"),
		"chain":    tailOf(t, 0, q+" 300 IN CNAME a.cdn.test.", "a.cdn.test. 20 IN A 192.0.2.3"),
		"HTTPS":    tailOf(t, 0, q+" 300 IN HTTPS 1 svc.test. alpn=h2 ipv4hint=192.0.2.4 ipv6hint=2001:db8::4"),
		"SRV":      tailOf(t, 0, q+" 300 IN SRV 0 0 443 nothing.test.", "+nothing.test. 60 IN A 192.0.2.5"),
		"MX":       tailOf(t, 0, q+" 15 IN MX 10 db.shop.svc.cluster.local.", q+" 15 IN MX 20 nothing.test."),
		"NXDOMAIN": tailOf(t, dns.RcodeNameError, "~org. 30 IN SOA ns.org. a.org. 1 2 3 4 20"),
		"NODATA":   tailOf(t, 0, "~org. 30 IN SOA ns.org. a.org. 1 2 3 4 20"),
		"SERVFAIL": tailOf(t, dns.RcodeServerFailure),
		"outside":  tailOf(t, 0, "other.test. 300 IN A 192.0.2.66"),
		"large":    tailOf(t, 0, large(q)...),
	}
	ask := func(pod, name, typ, flags, spelling byte) []byte {
		return []byte{stepQuestion, pod, name, typ, flags, spelling}
	}
	for _, kind := range []string{"A", "rotating", "chain", "HTTPS", "SRV", "MX", "NXDOMAIN", "NODATA", "SERVFAIL", "outside", "large"} {
		tail := answers[kind]
		up := append([]byte{stepUpstream, byte(len(tail) >> 8), byte(len(tail))}, tail...)
		typ := map[string]byte{"HTTPS": 2, "SRV": 3, "MX": 4}[kind]
		s := append([]byte(nil), up...)
		for _, pod := range []byte{0, 0, 2, 5, 6} {
			s = append(s, ask(pod, 0, typ, 8, 64)...)
			s = append(s, ask(pod, 0, typ, 0, 1)...)
		}
		seeds = append(seeds, s)
		s = append(append([]byte(nil), s...), stepClock, 13)
		s = append(s, ask(0, 0, typ, 8, 64)...)
		s = append(s, ask(0, 0, typ, 8, 64)...)
		s = append(s, ask(0, 4, 0, 8, 64)...) // followed
		s = append(s, stepClock, 15, stepPublish, 1)
		s = append(s, ask(0, 0, typ, 8, 64)...)
		s = append(s, stepUpstream, 0, 0, stepClock, 19)
		s = append(s, ask(0, 0, typ, 8, 64)...) // stale
		s = append(s, stepConfigure, 2, stepCluster, 1, stepForget, 1)
		s = append(s, ask(0x80, 0, typ, 8, 64)...)
		s = append(s, ask(0, 0, typ, 8, 64)...)
		seeds = append(seeds, s)
	}
	for _, raw := range [][]byte{{}, make([]byte, wire.HeaderBytes), packed(t, newQuery("www.example.org", dns.TypeA)), []byte("\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c\x00\x01\x00\x01")} {
		seeds = append(seeds, append([]byte{stepPacket, 0, byte(len(raw) >> 8), byte(len(raw))}, raw...))
	}
	return seeds
}

func large(q string) (rrs []string) {
	for i := range 80 {
		rrs = append(rrs, q+" 300 IN A 192.0.2."+itoa(i+1))
	}
	return rrs
}

// tailOf is a reply with the records, behind its id and question: the flags, the numbers
// of records and the records. "+" puts one into the additional section, "~" into the
// authority section.
func tailOf(t testing.TB, rcode int, texts ...string) []byte {
	t.Helper()
	m := newQuery("www.example.org", dns.TypeA)
	m.Response, m.Rcode, m.RecursionAvailable = true, rcode, true
	fatal.If(t, wiretest.Fill(m, texts...))
	msg := packed(t, m)
	return append(append([]byte{msg[2], msg[3]}, msg[6:wire.HeaderBytes]...), msg[wire.QuestionEnd(msg):]...)
}
