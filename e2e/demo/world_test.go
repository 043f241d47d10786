package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

func TestAnswer(t *testing.T) {
	for _, c := range []struct {
		name  string
		qtype uint16
		want  string // the addresses, or the rcode
	}{
		{"www.example.org.", dns.TypeA, listed4},
		{"WWW.Example.ORG.", dns.TypeA, listed4},
		{"www.example.org.", dns.TypeAAAA, listed6},
		{"www.example.org.", dns.TypeMX, "NOERROR"},
		{"other.test.", dns.TypeA, unlisted4},
		{"feed.example.com.", dns.TypeA, feed4},
		{"nobody.test.", dns.TypeA, "NXDOMAIN"},
	} {
		r := answer(new(dns.Msg).SetQuestion(c.name, c.qtype))
		got := dns.RcodeToString[r.Rcode]
		for _, rr := range r.Answer {
			got = strings.TrimPrefix(rr.String(), rr.Header().String())
		}
		if got != c.want {
			t.Errorf("%s %s: %s, want %s", c.name, dns.TypeToString[c.qtype], got, c.want)
		}
	}
	if r := answer(new(dns.Msg)); r.Rcode != dns.RcodeFormatError {
		t.Errorf("no question: %s, want FORMERR", dns.RcodeToString[r.Rcode])
	}
}

func TestFeedIsShort(t *testing.T) {
	r := answer(new(dns.Msg).SetQuestion(feedName+".", dns.TypeA))
	if len(r.Answer) != 1 || r.Answer[0].Header().Ttl != 2 {
		t.Errorf("the feed's answer is %v, and the tour says that its TTL is 2", r.Answer)
	}
}

func TestGreet(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(greet))
	defer s.Close()
	v := &visit{host: "www.example.org"}
	v.dialled(t, strings.TrimPrefix(s.URL, "http://"))
	defer v.close()
	for range 2 { // the connection is kept
		text, err := v.get()
		if want := "www.example.org at 127.0.0.1 greets 127.0.0.1"; err != nil || text != want {
			t.Errorf("%q, %v, want %q", text, err, want)
		}
	}
}
