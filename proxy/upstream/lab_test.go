package upstream

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/upstream/upstreamtest"
	"github.com/namegate/namegate/proxy/wire"
)

var loopback = netip.MustParseAddrPort("127.0.0.1:0")

// forged is the address of every lie.
const forged = "203.0.113.66"

func itoa(i int) string { return fmt.Sprint(i) }

func name(t testing.TB, s string) fqdn.Name {
	t.Helper()
	n, err := fqdn.ParseName(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func askFor(t testing.TB, qname string) wire.Query {
	return wire.Query{Question: wire.Question{Name: name(t, qname), Type: dns.TypeA, Class: dns.ClassINET}, Flags: wire.RD}
}

// await waits until a condition holds.
func await(t testing.TB, otherwise string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(otherwise)
		}
	}
}

// zoneOf is a root zone of these upstreams in their order, with short times.
func zoneOf(ups ...*upstreamtest.Server) corefile.Zone {
	z := corefile.Zone{Policy: corefile.Sequential, MaxFails: 2, Timeout: time.Second, Deadline: 20 * time.Second}
	for _, u := range ups {
		z.To = append(z.To, u.Addr)
	}
	return z
}

// newZone is a zone without upstreams.
func newZone() *Zone { return &Zone{pool: new(Pool)} }

// newForward is a zone with the upstreams of its configuration, and its totals.
func newForward(t *testing.T, config corefile.Zone) (*Zone, *counters) {
	t.Helper()
	z := newZone()
	var ups []*upstream
	for _, to := range config.To {
		u := newUpstream(to, z.pool)
		t.Cleanup(u.close)
		ups = append(ups, u)
	}
	z.set(&config, ups, nil)
	return z, &z.pool.stats
}

func answersWith(t *testing.T, z *Zone, ip string) {
	t.Helper()
	got, err := z.resolve(askFor(t, "www.example.org"))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Msg.Answer) != 1 || got.Msg.Answer[0].(*dns.A).A.String() != ip {
		t.Errorf("answer %v, want %s", got.Msg.Answer, ip)
	}
}

// read returns the message of a reply over UDP if it answers the query, else nil.
func read(query, reply []byte, end int) *dns.Msg {
	if !wire.Answers(query, reply, end) {
		return nil
	}
	return parse(reply, len(reply) == PacketBytes)
}
