package wire

import (
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/wiretest"
)

const wwwName fqdn.Name = "\x03www\x07example\x03org"

// answerTo is the packed answer to a query for www.example.org.
func answerTo(t testing.TB, q *dns.Msg, records ...string) []byte {
	t.Helper()
	m := new(dns.Msg).SetReply(q)
	m.Compress = true
	m.SetEdns0(1232, false)
	fatal.If(t, wiretest.Fill(m, records...))
	return packed(t, m)
}

// TestAnswerViewReadsNoOtherType: data of 16 bytes are an IPv6 address in an AAAA record
// alone.
func TestAnswerViewReadsNoOtherType(t *testing.T) {
	for text, qtype := range map[string]uint16{
		`TXT "fifteen letters"`:            dns.TypeTXT,
		"SRV 0 0 443 host.abc.":            dns.TypeSRV,
		"HTTPS 1 abcd. ipv4hint=192.0.2.1": dns.TypeHTTPS,
		"HTTPS 1 . alpn=h2 port=443":       dns.TypeHTTPS,
	} {
		packet := answerTo(t, newQuery("www.example.org", qtype), "www.example.org. 60 "+text)
		var v AnswerView
		if v.Parse(packet, Question{wwwName, qtype, dns.ClassINET}, 8, nil) {
			t.Errorf("%s is read as %v", text, v.Addrs)
		}
	}
}
