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
