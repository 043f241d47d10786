package policy

import (
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

func TestRegisteredZone(t *testing.T) {
	for name, want := range map[string]struct {
		zone    string
		below   int
		reverse bool
	}{
		".":                           {".", 0, false},
		"org":                         {"org", 0, false},
		"example.org":                 {"example.org", 0, false},
		"www.example.org":             {"example.org", 1, false},
		"a.b.c.example.co.uk":         {"example.co.uk", 3, false},
		"co.uk":                       {"co.uk", 0, false},
		"a.bucket.s3.amazonaws.com":   {"amazonaws.com", 3, false}, // a suffix that no registry runs
		"a.b.github.io":               {"github.io", 2, false},
		"a.b.corp":                    {"b.corp", 1, false}, // no known suffix
		"a.b.internal.test":           {"internal.test", 2, false},
		`evil\.com.example.org`:       {"example.org", 1, false},
		`a.evil\.com`:                 {`a.evil\.com`, 0, false},
		"a.xn--bcher-kva.xn--p1ai":    {"xn--bcher-kva.xn--p1ai", 1, false},
		"4.3.2.10.in-addr.arpa":       {"10.in-addr.arpa", 3, true},
		"5.4.3.2.10.in-addr.arpa":     {"10.in-addr.arpa", 4, false},
		"xyz.3.2.10.in-addr.arpa":     {"10.in-addr.arpa", 3, false},
		"3.2.10.in-addr.arpa":         {"10.in-addr.arpa", 2, false},
		"long.label.x.y.in-addr.arpa": {"y.in-addr.arpa", 3, false},
		"1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa":  {"2.ip6.arpa", 31, true},
		"10.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa": {"2.ip6.arpa", 31, false},
		"0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa":    {"2.ip6.arpa", 30, false},
	} {
		n, err := fqdn.ParseName(name)
		fatal.If(t, err)
		zone, below := RegisteredZone(n)
		if zone.String() != want.zone || below != want.below || isReverse(n) != want.reverse {
			t.Errorf("%s: %d labels below %s, reverse %t, want %+v", name, below, zone, isReverse(n), want)
		}
		for i := 0; i < below; i++ {
			_, n, _ = cutLabel(n)
		}
		diff.Equal(t, zone, n, name, "the zone of the name")
	}
}

func cutLabel(n fqdn.Name) (label string, rest fqdn.Name, ok bool) {
	if n == "" {
		return "", "", false
	}
	return string(n[1 : 1+n[0]]), n[1+n[0]:], true
}

// TestQueryTypes: a name is that of its number, and no number is in a set that does not list it.
func TestQueryTypes(t *testing.T) {
	all := QueryTypes(0)
	for _, name := range QueryTypeNames() {
		of, known := QueryTypesNamed(name)
		if !known || all&of != 0 || !of.Has(dns.StringToType[name]) || of.Has(0) {
			t.Errorf("%s: %b", name, of)
		}
		all |= of
		for number := range uint16(1000) {
			if of.Has(number) != (number == dns.StringToType[name]) || (^of).Has(number) != (number != 0 && number != dns.StringToType[name]) {
				t.Errorf("%s has type %d: %t", name, number, of.Has(number))
			}
		}
		diff.Error(t, []string{name}, of.Names())
	}
	if _, known := QueryTypesNamed("a"); known || QueryTypes(0).Has(dns.TypeA) {
		t.Error("a type that no set has")
	}
}

func TestStrictest(t *testing.T) {
	a := DNSLimits{Withheld: 1, MaxLabels: 3}
	b := DNSLimits{Withheld: 2, MaxLabels: 2, MaxRate: 7}
	want := DNSLimits{Withheld: 3, MaxLabels: 2, MaxRate: 7}
	if a.Strictest(b) != want || b.Strictest(a) != want || a.Strictest(DNSLimits{}) != a || (DNSLimits{}).Strictest(b) != b {
		t.Error(a.Strictest(b), b.Strictest(a))
	}
}
