package explain

import (
	"strings"
	"testing"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
)

func TestParseTarget(t *testing.T) {
	for text, want := range map[string]string{
		"www.Example.org":          "www.example.org",
		"www.example.org.":         "www.example.org",
		"www.example.org:443":      "www.example.org:443/tcp",
		"www.example.org:53/UDP":   "www.example.org:53/udp",
		"www.example.org/sctp":     "www.example.org/sctp",
		"192.0.2.1":                "192.0.2.1",
		"192.0.2.1:443":            "192.0.2.1:443/tcp",
		"::ffff:192.0.2.1":         "192.0.2.1",
		"192.0.2.1/icmp":           "192.0.2.1/icmp",
		"2001:db8::1":              "2001:db8::1",
		"2001:db8::1/udp":          "2001:db8::1/udp",
		"[2001:db8::1]":            "2001:db8::1",
		"[2001:db8::1]:53/udp":     "[2001:db8::1]:53/udp",
		"2001:db8::1/icmp":         "2001:db8::1/icmp",
		"_sip._tcp.example.org:99": "_sip._tcp.example.org:99/tcp",
	} {
		to := target(t, text)
		diff.Equal(t, want, to.String(), text)
		diff.Equal(t, to, target(t, want), want, "read as it is written")
	}
	diff.Equal(t, icmp6, target(t, "2001:db8::1/icmp").Protocol, "ICMP to an IPv6 address is protocol")
}

func TestParseTargetRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "nothing is written",
		"https://www.x.org/path": `"https://www.x.org/path" is a URL; write its host alone`,
		"www.example.org:0":      `"0" is no port; write 1 to 65535`,
		"www.example.org:65536":  `"65536" is no port`,
		"www.example.org:":       "no port stands behind the colon",
		"www.example.org/http":   `protocol "http" is not known; write tcp, udp, sctp or icmp`,
		"192.0.2.1:1/icmp":       "ICMP has no ports; leave :1 out",
		"*.example.org":          `"*.example.org" is a pattern; write one name`,
		"bücher.example":         "write xn--bcher-kva.example",
		"[2001:db8::1]443":       "write [2001:db8::1]:443",
		"[2001:db8::1]:":         "write [2001:db8::1]:443",
		"a..b":                   "empty label",
		"192.0.2.010":            `"192.0.2.010" is no address`,
		"300.1.1.1:443":          `"300.1.1.1" is no address`,
		"10.0.0":                 `"10.0.0" is no address`,
		"2001:db8::1:443:x":      "write a bare domain name",
	} {
		if _, err := ParseTarget(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", text, err, want)
		}
	}
}

// FuzzParseTarget: a parsed target is printed as text with the same meaning.
func FuzzParseTarget(f *testing.F) {
	for _, s := range []string{"www.example.org:443/udp", "[2001:db8::1]:53/udp", "192.0.2.1/icmp", "::1", "a:1:b", "[", "x/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		to, err := ParseTarget(s)
		if err != nil {
			return
		}
		if again, err := ParseTarget(to.String()); err != nil || again != to {
			t.Errorf("%q is %v, written %q, read again %v, %v", s, to, to, again, err)
		}
		if to.Port != 0 && to.Protocol == policy.AnyProtocol {
			t.Errorf("%q has a port of no protocol", s)
		}
	})
}
