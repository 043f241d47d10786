package answer

import (
	"fmt"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

func svcb(t *testing.T, text string) *dns.SVCB {
	t.Helper()
	rr, err := dns.NewRR("a.test. 60 IN SVCB " + text)
	fatal.If(t, err)
	return rr.(*dns.SVCB)
}

func TestHints(t *testing.T) {
	for text, want := range map[string]string{
		"1 .":                                  "",
		"1 . alpn=h2 port=8443":                "",
		"1 . ipv4hint=192.0.2.1":               "192.0.2.1",
		"1 b.test. ipv4hint=192.0.2.1":         "192.0.2.1",
		"1 . ipv6hint=2001:db8::1,2001:db8::2": "2001:db8::1 2001:db8::2",
		"16 . ipv6hint=2001:db8::1 ipv4hint=192.0.2.1 ech=AAAA": "192.0.2.1 2001:db8::1",
		"0 b.test.": "",
		"1 . mandatory=alpn,ipv4hint alpn=h2 ipv4hint=192.0.2.1":       "192.0.2.1",
		"1 . ipv4hint=192.0.2.1,192.0.2.1":                             "192.0.2.1 192.0.2.1",
		"1 . key65000=x ipv4hint=192.0.2.1 no-default-alpn alpn=h2,h3": "192.0.2.1",
	} {
		var got []string
		for _, ip := range hints(svcb(t, text)) {
			got = append(got, ip.String())
		}
		if strings.Join(got, " ") != want && !sameWords(got, want) {
			t.Errorf("%s: %v, want %s", text, got, want)
		}
		diff.Equal(t, want != "", hasHints(svcb(t, text)), text, "hints")
	}
}

// sameWords compares without the order, which the keys' numbers give.
func sameWords(got []string, want string) bool {
	for _, w := range strings.Fields(want) {
		if !strings.Contains(fmt.Sprint(got), w) {
			return false
		}
	}
	return len(got) == len(strings.Fields(want))
}

func TestAliasModeHintsAreNoAddresses(t *testing.T) {
	rr := svcb(t, "1 b.test. ipv4hint=192.0.2.66")
	rr.Priority = 0 // a forger's: the presentation form does not allow it
	if got := hints(rr); got != nil {
		t.Errorf("hints %v", got)
	}
	if !carriesAddress(rr) {
		t.Error("a client that reads them anyway would hold one")
	}
}

func TestCarriesAddress(t *testing.T) {
	for text, want := range map[string]bool{
		"a.test. 60 IN A 192.0.2.1":                    true,
		"a.test. 60 IN AAAA 2001:db8::1":               true,
		"a.test. 60 IN HTTPS 1 . ipv4hint=192.0.2.1":   true,
		"a.test. 60 IN SVCB 1 . ipv6hint=2001:db8::1":  true,
		"a.test. 60 IN HTTPS 1 . alpn=h2":              false,
		"a.test. 60 IN CNAME b.test.":                  false,
		"a.test. 60 IN MX 10 b.test.":                  false,
		"a.test. 60 IN TXT 192.0.2.1":                  false,
		"a.test. 60 IN SRV 0 0 443 b.test.":            false,
		"a.test. 60 IN TYPE65280 \\# 4 c0000201":       false,
		"a.test. 60 IN NS b.test.":                     false,
		"a.test. 60 IN SOA a.test. b.test. 1 2 3 4 60": false,
	} {
		rr, err := dns.NewRR(text)
		fatal.If(t, err)
		diff.Equal(t, want, carriesAddress(rr), text)
	}
}
