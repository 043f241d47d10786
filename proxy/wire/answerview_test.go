package wire

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/diff"
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

func TestAnswerView(t *testing.T) {
	q := newQuery("wWw.example.org", dns.TypeA)
	q.SetEdns0(1232, true)
	view, ok := ParseQuery(packed(t, q))
	if !ok || view.Query(wwwName) != (Query{Question: Question{wwwName, dns.TypeA, dns.ClassINET}, Flags: RD | DO}) {
		t.Fatalf("the query is %+v", view)
	}
	lower := newQuery("www.example.org", dns.TypeA)
	packet := answerTo(t, lower, "www.example.org. 90 CNAME edge.cdn.test.", "edge.cdn.test. 300 A 192.0.2.1", "edge.cdn.test. 7200 A 192.0.2.2")
	var v AnswerView
	if !v.Parse(packet, view.Query(wwwName).Question, 8, []TTLBounds{{60, 3600}}) {
		t.Fatal("it is not plain")
	}
	want := []Address{{netip.MustParseAddr("192.0.2.1"), 90, 1}, {netip.MustParseAddr("192.0.2.2"), 90, 2}}
	if !slices.Equal(v.Addrs, want) || !slices.Equal(v.Chain, []fqdn.Name{"\x04edge\x03cdn\x04test"}) || v.MinTTL() != 90 {
		t.Errorf("%v by %v, at least %d s", v.Addrs, v.Chain, v.MinTTL())
	}
	v.Own()
	clear(packet)
	if !v.Fits(&view) {
		t.Error("it does not fit")
	}
	reply := v.AppendReply(nil, &view)
	for _, longest := range []uint32{MaxTTL, 45} {
		v.LowerTTLs(reply, longest)
		m := new(dns.Msg)
		if err := m.Unpack(reply); err != nil || m.Id != q.Id || m.Question[0] != q.Question[0] || len(m.Answer) != 3 || m.IsEdns0() == nil || !m.IsEdns0().Do() {
			t.Fatalf("%v, %v", m, err)
		}
		for _, rr := range m.Answer {
			diff.Equal(t, min(90, longest), rr.Header().Ttl, "at most", longest, rr)
		}
	}
}

func TestAnswerViewLeavesToTheParser(t *testing.T) {
	q := newQuery("www.example.org", dns.TypeA)
	question := Question{wwwName, dns.TypeA, dns.ClassINET}
	for what, records := range map[string][]string{
		"no address":        nil,
		"another name":      {"other.test. 60 A 192.0.2.1"},
		"another type":      {"www.example.org. 60 AAAA 2001:db8::1"},
		"a text beside it":  {"www.example.org. 60 A 192.0.2.1", "www.example.org. 60 TXT x"},
		"a circle":          {"www.example.org. 60 CNAME www.example.org."},
		"too many":          {"www.example.org. 60 A 192.0.2.1", "www.example.org. 60 A 192.0.2.2", "www.example.org. 60 A 192.0.2.3"},
		"not in order":      {"edge.cdn.test. 60 A 192.0.2.1", "www.example.org. 60 CNAME edge.cdn.test."},
		"a CNAME behind it": {"www.example.org. 60 A 192.0.2.1", "www.example.org. 60 CNAME edge.cdn.test."},
	} {
		packet := answerTo(t, q, records...)
		before := slices.Clone(packet)
		var v AnswerView
		if v.Parse(packet, question, 2, nil) {
			t.Errorf("%s is taken for plain", what)
		}
		diff.Error(t, before, packet, what)
	}
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
