package main

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/cluster"
	"github.com/namegate/namegate/testkit/fatal"
)

func newZone(t *testing.T, records string) *zone {
	t.Helper()
	file := filepath.Join(t.TempDir(), "zone")
	fatal.If(t, os.WriteFile(file, []byte(records), 0o600))
	return &zone{file: file}
}

// ask returns the answer's rcode and its records as addresses and targets.
func (z *zone) ask(name string, qtype uint16) (rcode string, addrs []string, ttl uint32) {
	r := z.answer(new(dns.Msg).SetQuestion(name, qtype))
	for _, rr := range r.Answer {
		ttl = rr.Header().Ttl
		switch rr := rr.(type) {
		case *dns.A:
			addrs = append(addrs, rr.A.String())
		case *dns.AAAA:
			addrs = append(addrs, rr.AAAA.String())
		case *dns.CNAME:
			addrs = append(addrs, rr.Target)
		}
	}
	return dns.RcodeToString[r.Rcode], addrs, ttl
}

func TestAnswers(t *testing.T) {
	z := newZone(t, cluster.Zone)
	for _, c := range []struct {
		name  string
		qtype uint16
		rcode string
		addrs string
		ttl   uint32
	}{
		{"example.org.", dns.TypeA, "NOERROR", "[198.51.100.10]", 60},
		{"EXAMPLE.org.", dns.TypeAAAA, "NOERROR", "[2001:db8::10]", 60},
		{"alias.example.org.", dns.TypeA, "NOERROR", "[www.example.org. 198.51.100.11]", 60},
		{"alias.example.org.", dns.TypeAAAA, "NOERROR", "[www.example.org. 2001:db8::11]", 60},
		{"any.wild.test.", dns.TypeA, "NOERROR", "[198.51.100.20]", 60},
		{"a.b.wild.test.", dns.TypeA, "NXDOMAIN", "[]", 0},
		{"any.wild.test.", dns.TypeAAAA, "NOERROR", "[]", 0},
		{"two.test.", dns.TypeA, "NOERROR", "[203.0.113.41 203.0.113.42]", 60},
		{"missing.test.", dns.TypeA, "NXDOMAIN", "[]", 0},
		{"198-51-100-7.ip.test.", dns.TypeA, "NOERROR", "[198.51.100.7]", 60},
		{"198-51-100-7.ip.test.", dns.TypeAAAA, "NOERROR", "[]", 0},
		{"2001-db8--7.ip.test.", dns.TypeAAAA, "NOERROR", "[2001:db8::7]", 60},
		{"ttl-5.198-51-100-7.ip.test.", dns.TypeA, "NOERROR", "[198.51.100.7]", 5},
		{"word.ip.test.", dns.TypeA, "NXDOMAIN", "[]", 0},
		{"ip.test.", dns.TypeA, "NXDOMAIN", "[]", 0},
		{".", dns.TypeA, "NXDOMAIN", "[]", 0},
	} {
		rcode, addrs, ttl := z.ask(c.name, c.qtype)
		if got := fmt.Sprint(addrs); rcode != c.rcode || got != c.addrs || ttl != c.ttl {
			t.Errorf("%s %s: %s %s ttl %d, want %s %s ttl %d", c.name, dns.TypeToString[c.qtype], rcode, got, ttl, c.rcode, c.addrs, c.ttl)
		}
	}
}

func TestRotatingNames(t *testing.T) {
	z := newZone(t, cluster.Zone)
	for qtype, in := range map[uint16]string{dns.TypeA: "198.18.0.0/15", dns.TypeAAAA: "2001:db8:18::/48"} {
		seen := map[string]bool{}
		for range 100 {
			_, addrs, _ := z.ask("x.rotate.test.", qtype)
			if len(addrs) != 1 || !netip.MustParsePrefix(in).Contains(netip.MustParseAddr(addrs[0])) {
				t.Fatalf("got %v, want an address of %s", addrs, in)
			}
			seen[addrs[0]] = true
		}
		if len(seen) < 90 {
			t.Errorf("a hundred answers had %d addresses", len(seen))
		}
	}
}

func TestChangedFileCounts(t *testing.T) {
	z := newZone(t, "x.test. A 192.0.2.1\n")
	if _, addrs, _ := z.ask("x.test.", dns.TypeA); fmt.Sprint(addrs) != "[192.0.2.1]" {
		t.Fatalf("got %v", addrs)
	}
	fatal.If(t, os.WriteFile(z.file, []byte("x.test. A 192.0.2.2\n"), 0o600))
	later := time.Now().Add(time.Second)
	fatal.If(t, os.Chtimes(z.file, later, later))
	if _, addrs, _ := z.ask("x.test.", dns.TypeA); fmt.Sprint(addrs) != "[192.0.2.2]" {
		t.Errorf("after the change: %v", addrs)
	}
	fatal.If(t, os.WriteFile(z.file, []byte("x.test. A no-address\n"), 0o600))
	fatal.If(t, os.Chtimes(z.file, later, later.Add(time.Second)))
	if rcode, _, _ := z.ask("x.test.", dns.TypeA); rcode != "SERVFAIL" {
		t.Errorf("of a broken file: %s", rcode)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add("ttl-5.198-51-100-7.ip.test.")
	f.Add("2001-db8--7.ip.test.")
	f.Add("a.rotate.test.")
	file := filepath.Join(f.TempDir(), "zone")
	fatal.If(f, os.WriteFile(file, []byte(cluster.Zone), 0o600))
	z := &zone{file: file}
	f.Fuzz(func(t *testing.T, name string) {
		if _, ok := dns.IsDomainName(name); !ok {
			return
		}
		r := z.answer(new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeA))
		for _, rr := range r.Answer {
			if _, ok := rr.(*dns.A); !ok && rr.Header().Rrtype != dns.TypeCNAME {
				t.Errorf("%q has %s", name, rr)
			}
		}
	})
}
