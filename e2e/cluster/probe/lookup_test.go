package probe

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/wiretest"
)

// resolver serves DNS on this machine and returns where.
func resolver(t *testing.T, h dns.HandlerFunc) string {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	fatal.If(t, err)
	up := make(chan struct{})
	s := &dns.Server{PacketConn: c, Handler: h, NotifyStartedFunc: func() { close(up) }}
	go func() { _ = s.ActivateAndServe() }()
	<-up
	t.Cleanup(func() { _ = s.Shutdown() })
	return c.LocalAddr().String()
}

// answers serves records for every question, NXDOMAIN for names below no.test.
func answers(records ...string) dns.HandlerFunc {
	return func(w dns.ResponseWriter, q *dns.Msg) {
		r := new(dns.Msg).SetReply(q)
		if strings.HasSuffix(q.Question[0].Name, "no.test.") {
			r.Rcode = dns.RcodeNameError
		} else if err := wiretest.Fill(r, records...); err != nil {
			panic(err)
		}
		_ = w.WriteMsg(r)
	}
}

func TestLookup(t *testing.T) {
	at := resolver(t, answers("www.example.org. 60 CNAME x.test.", "x.test. 7 A 198.51.100.7", "x.test. 9 A 198.51.100.8"))
	got := Lookup(t.Context(), "udp", "www.example.org", "a", at)
	if got.Class != OK || got.Rcode != "NOERROR" || got.TTL != 7 || len(got.Addrs) != 2 || got.Addrs[0] != netip.MustParseAddr("198.51.100.7") {
		t.Errorf("lookup: %+v", got)
	}
	if got := Lookup(t.Context(), "udp", "no.test", "A", at); got.Class != OK || got.Rcode != "NXDOMAIN" || got.Addrs != nil {
		t.Errorf("a name that is not there: %+v", got)
	}
	if got := Lookup(t.Context(), "udp", "example.org", "NOSUCH", at); got.Class != Failed {
		t.Errorf("a type that is not there: %+v", got)
	}
}

func TestServer(t *testing.T) {
	for word, want := range map[string]string{
		"192.0.2.53": "192.0.2.53:53", "192.0.2.53:5353": "192.0.2.53:5353",
		"2001:db8::53": "[2001:db8::53]:53", "[2001:db8::53]:5353": "[2001:db8::53]:5353",
	} {
		if got, err := Server(word); err != nil || got != want {
			t.Errorf("%s is %s (%v), want %s", word, got, err, want)
		}
	}
	if got, err := Server("dns.example.org"); err == nil {
		t.Errorf("a name became %s", got)
	}
}
