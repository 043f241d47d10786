package answer

import (
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

const (
	sigOfHTTPS = "a.test. 60 IN RRSIG HTTPS 13 2 60 20300101000000 20200101000000 1 test. AAAA"
	sigOfCNAME = "a.test. 60 IN RRSIG CNAME 13 2 60 20300101000000 20200101000000 1 test. AAAA"
)

// TestShowServerName: the records of an answer with AD, and those that a client gets, as they are on the wire.
func TestShowServerName(t *testing.T) {
	for _, c := range []struct {
		name      string
		from, get []string // nil: the same
	}{
		{"nothing that hides", []string{"a.test. 60 IN HTTPS 1 . alpn=h2,http/1.1 port=8443 ipv4hint=192.0.2.1 key65000=x", "a.test. 60 IN A 192.0.2.1", "a.test. 60 IN TXT h3"}, nil},
		{"the alias mode", []string{"a.test. 60 IN HTTPS 0 b.test.", "a.test. 60 IN SVCB 0 b.test."}, nil},
		{"other protocols", []string{"a.test. 60 IN HTTPS 1 . alpn=h30,xh3,doq"}, nil},
		{"no protocols", []string{"a.test. 60 IN HTTPS 1 ."}, nil},
		{"mandatory keys that stay", []string{"a.test. 60 IN HTTPS 1 . mandatory=alpn,port alpn=h2 port=8443"}, nil},
		{"signed, and nothing that hides", []string{"a.test. 60 IN HTTPS 1 . alpn=h2", sigOfHTTPS}, nil},
		{"ech", []string{"a.test. 60 IN HTTPS 1 . alpn=h2 port=8443 ech=AAAA ipv4hint=192.0.2.1 ipv6hint=2001:db8::1 key65000=x"},
			[]string{"a.test. 60 IN HTTPS 1 . alpn=h2 port=8443 ipv4hint=192.0.2.1 ipv6hint=2001:db8::1 key65000=x"}},
		{"ech of another name", []string{"a.test. 60 IN CNAME b.test.", "b.test. 60 IN HTTPS 1 c.test. ech=AAAA"}, []string{"a.test. 60 IN CNAME b.test.", "b.test. 60 IN HTTPS 1 c.test."}},
		{"HTTP/3 and more", []string{"a.test. 60 IN HTTPS 1 . alpn=h3,h2,h3-29,http/1.1 ech=AAAA"}, []string{"a.test. 60 IN HTTPS 1 . alpn=h2,http/1.1"}},
		{"HTTP/3 without default protocols", []string{"a.test. 60 IN HTTPS 1 . alpn=h3,h2 no-default-alpn"}, []string{"a.test. 60 IN HTTPS 1 . alpn=h2 no-default-alpn"}},
		{"HTTP/3 that is mandatory with others", []string{"a.test. 60 IN SVCB 1 . mandatory=alpn alpn=h3,h2"}, []string{"a.test. 60 IN SVCB 1 . mandatory=alpn alpn=h2"}},
		{"HTTP/3 alone", []string{"a.test. 60 IN HTTPS 1 . alpn=h3 port=8443", "a.test. 60 IN HTTPS 2 . alpn=h2"}, []string{"a.test. 60 IN HTTPS 2 . alpn=h2"}},
		{"drafts alone", []string{"a.test. 60 IN HTTPS 1 . alpn=h3-29,h3 no-default-alpn"}, []string{}},
		{"mandatory ech", []string{"a.test. 60 IN HTTPS 1 . mandatory=ech,alpn alpn=h2 ech=AAAA", "a.test. 60 IN HTTPS 2 . alpn=h2 ech=AAAA"}, []string{"a.test. 60 IN HTTPS 2 . alpn=h2"}},
		{"signed", []string{"a.test. 60 IN HTTPS 1 . alpn=h2 ech=AAAA", "a.test. 60 IN HTTPS 2 . alpn=h2", "A.test. 60 IN RRSIG HTTPS 13 2 60 20300101000000 20200101000000 1 test. AAAA",
			"a.test. 60 IN SVCB 2 . alpn=h2", "b.test. 60 IN HTTPS 1 . alpn=h3,h2"},
			[]string{"a.test. 60 IN SVCB 2 . alpn=h2", "b.test. 60 IN HTTPS 1 . alpn=h2"}},
		{"signed, of which a record would be left out", []string{"a.test. 60 IN HTTPS 1 . alpn=h3", "a.test. 60 IN HTTPS 2 . alpn=h2", sigOfHTTPS}, []string{}},
		{"another type that is signed", []string{"a.test. 60 IN CNAME b.test.", sigOfCNAME, "b.test. 60 IN HTTPS 1 . ech=AAAA"}, []string{"a.test. 60 IN CNAME b.test.", sigOfCNAME, "b.test. 60 IN HTTPS 1 ."}},
	} {
		for section := range 3 {
			m, r := new(dns.Msg), new(dns.Msg)
			m.SetQuestion("a.test.", dns.TypeHTTPS)
			m.AuthenticatedData = true
			of := func(m *dns.Msg) *[]dns.RR { return []*[]dns.RR{&m.Answer, &m.Ns, &m.Extra}[section] }
			for _, text := range c.from {
				rr, err := dns.NewRR(text)
				fatal.If(t, err, text)
				*of(m) = append(*of(m), rr)
			}
			wire, err := m.Pack()
			fatal.If(t, err)
			fatal.If(t, m.Unpack(wire))
			before := m.String()
			*r = *m
			r.Extra = slices.Clone(m.Extra)
			ShowServerName(r)
			if m.String() != before {
				t.Errorf("%s: the answer is changed, which others have too", c.name)
			}
			wire, err = r.Pack()
			fatal.If(t, err, c.name)
			fatal.If(t, r.Unpack(wire), c.name)
			want := c.get
			if want == nil {
				want = c.from
			}
			got := []string{}
			for _, rr := range *of(r) {
				got = append(got, rr.String())
			}
			for i, text := range want {
				rr, err := dns.NewRR(text)
				fatal.If(t, err)
				want = slices.Clone(want)
				want[i] = rr.String()
			}
			sorted := func(texts []string) []string { // of the keys, which a text may have in any order
				for i := range texts {
					words := strings.Fields(texts[i])
					slices.Sort(words)
					texts[i] = strings.Join(words, " ")
				}
				return texts
			}
			diff.Error(t, sorted(want), sorted(got), c.name)
			diff.Error(t, c.get == nil, r.AuthenticatedData, c.name, "authenticated")
		}
	}
}
