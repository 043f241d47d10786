package upstream

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/testkit/fatal"
)

// TestAsk: a reply answers the question that was asked, however long it is; a query that is sent back, and the
// answer to another question, are none.
func TestAsk(t *testing.T) {
	for what, test := range map[string]struct {
		reply func(q *dns.Msg) *dns.Msg
		good  bool
	}{
		"an answer": {func(q *dns.Msg) *dns.Msg { return new(dns.Msg).SetReply(q) }, true},
		"a long answer": {func(q *dns.Msg) *dns.Msg {
			r := new(dns.Msg).SetReply(q)
			for range 40 {
				r.Answer = append(r.Answer, &dns.TXT{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeTXT, Class: dns.ClassINET}, Txt: []string{"a text of some length"}})
			}
			return r
		}, true},
		"the query": {func(q *dns.Msg) *dns.Msg { return q }, false},
		"another question": {func(q *dns.Msg) *dns.Msg {
			r := new(dns.Msg).SetReply(q)
			r.Question[0].Name = "other.test."
			return r
		}, false},
	} {
		server, err := net.ListenPacket("udp", "127.0.0.1:0")
		fatal.If(t, err)
		go func() {
			buf := make([]byte, 4096)
			for {
				n, from, err := server.ReadFrom(buf)
				q := new(dns.Msg)
				if err != nil || q.Unpack(buf[:n]) != nil {
					return
				}
				if out, err := test.reply(q).Pack(); err == nil {
					_, _ = server.WriteTo(out, from)
				}
			}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		q := new(dns.Msg).SetQuestion("www.example.org.", dns.TypeTXT)
		at := server.LocalAddr().(*net.UDPAddr).AddrPort()
		if _, err := Ask(ctx, new(net.Dialer), at, q, time.Second); (err == nil) != test.good {
			t.Errorf("%s: %v", what, err)
		}
		cancel()
		server.Close()
	}
}
