package answer

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
	"github.com/namegate/namegate/testkit/wiretest"
)

func TestCheck(t *testing.T) {
	const q = "www.example.org. "
	for _, tt := range []struct {
		name  string
		qtype uint16
		rrs   []string
		want  string // "address/ttl …; chain; reason"
	}{
		{"nothing", dns.TypeA, nil, ""},
		{"one", dns.TypeA, []string{q + "60 A 192.0.2.1"}, "192.0.2.1/60"},
		{"the order of the answer", dns.TypeA, []string{q + "60 A 192.0.2.9", q + "50 A 192.0.2.1"}, "192.0.2.9/60 192.0.2.1/50"},
		{"the least TTL of the chain", dns.TypeA, []string{q + "7 CNAME a.test.", "a.test. 600 CNAME b.test.", "b.test. 60 A 192.0.2.1"}, "192.0.2.1/7; a.test b.test"},
		{"a chain in any order", dns.TypeA, []string{"b.test. 60 A 192.0.2.1", "a.test. 600 CNAME b.test.", q + "90 CNAME a.test."}, "192.0.2.1/60; a.test b.test"},
		{"the first CNAME of an owner", dns.TypeA, []string{q + "60 CNAME a.test.", q + "60 CNAME b.test.", "b.test. 60 A 192.0.2.66", "a.test. 60 A 192.0.2.1"}, "192.0.2.1/60; a.test"},
		{"TTL with the top bit", dns.TypeA, []string{q + "2147483648 A 192.0.2.1"}, "192.0.2.1/0"},
		{"the greatest TTL", dns.TypeA, []string{q + "2147483647 A 192.0.2.1"}, "192.0.2.1/2147483647"},
		{"AAAA", dns.TypeAAAA, []string{q + "60 AAAA 2001:db8::1"}, "2001:db8::1/60"},
		{"mapped", dns.TypeAAAA, []string{q + "60 AAAA ::ffff:192.0.2.1"}, "192.0.2.1/60"},
		{"A in an answer for AAAA", dns.TypeAAAA, []string{q + "60 A 192.0.2.66"}, ""},
		{"A and AAAA for ANY", dns.TypeANY, []string{q + "60 A 192.0.2.1", q + "60 AAAA 2001:db8::1", q + "60 TXT x"}, "192.0.2.1/60 2001:db8::1/60"},
		{"CNAME was asked", dns.TypeCNAME, []string{q + "60 CNAME a.test.", "a.test. 60 A 192.0.2.66"}, ""},
		{"HTTPS", dns.TypeHTTPS, []string{q + "60 HTTPS 1 . alpn=h2 ipv4hint=192.0.2.1,192.0.2.2 ipv6hint=2001:db8::1"}, "192.0.2.1/60 192.0.2.2/60 2001:db8::1/60"},
		{"HTTPS behind a CNAME", dns.TypeHTTPS, []string{q + "60 CNAME a.test.", "a.test. 5 HTTPS 1 . ipv4hint=192.0.2.1"}, "192.0.2.1/5; a.test"},
		{"HTTPS of another owner", dns.TypeHTTPS, []string{"a.test. 5 HTTPS 1 . ipv4hint=192.0.2.66"}, ""},
		{"HTTPS in alias mode", dns.TypeHTTPS, []string{q + "60 HTTPS 0 a.test. ipv4hint=192.0.2.66"}, ""},
		{"SVCB", dns.TypeSVCB, []string{q + "60 SVCB 1 a.test. ipv4hint=192.0.2.1"}, "192.0.2.1/60"},
		{"SVCB in an answer for HTTPS", dns.TypeHTTPS, []string{q + "60 SVCB 1 . ipv4hint=192.0.2.66"}, ""},
		{"A beside HTTPS", dns.TypeHTTPS, []string{q + "60 HTTPS 1 .", q + "60 A 192.0.2.66"}, ""},
		{"a circle", dns.TypeA, []string{q + "60 CNAME a.test.", "a.test. 60 CNAME www.EXAMPLE.org."}, "its CNAMEs run in a circle"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := message(t, "www.example.org", tt.qtype, tt.rrs...)
			question, _ := ReadQuestion(m)
			diff.Equal(t, tt.want, describe(Check(question, m, 64)))
		})
	}
}

func describe(c Checked) string {
	var addrs, chain []string
	for _, a := range c.Addrs {
		addrs = append(addrs, fmt.Sprintf("%s/%d", a.Addr, a.TTL))
	}
	for _, n := range c.Chain {
		chain = append(chain, n.String())
	}
	s := strings.Join(addrs, " ")
	if len(chain) > 0 {
		s += "; " + strings.Join(chain, " ")
	}
	return s + c.Reason
}

func TestCheckLongChain(t *testing.T) {
	chain := func(n int) []string {
		rrs := []string{"www.example.org. 60 CNAME c1.test."}
		for i := 1; i < n; i++ {
			rrs = append(rrs, fmt.Sprintf("c%d.test. 60 CNAME c%d.test.", i, i+1))
		}
		return append(rrs, fmt.Sprintf("c%d.test. 60 A 192.0.2.1", n))
	}
	for n, honest := range map[int]bool{wire.MaxChain: true, wire.MaxChain + 1: false} {
		m := message(t, "www.example.org", dns.TypeA, chain(n)...)
		q, _ := ReadQuestion(m)
		c := Check(q, m, 64)
		if (c.Reason == "") != honest || len(c.Addrs) > 0 != honest {
			t.Errorf("%d CNAMEs: %+v", n, c)
		}
	}
}

func TestCheckRefusesOtherMessages(t *testing.T) {
	for name, edit := range map[string]func(*dns.Msg){
		"a query":          func(m *dns.Msg) { m.Response = false },
		"an update":        func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate },
		"truncated":        func(m *dns.Msg) { m.Truncated = true },
		"another name":     func(m *dns.Msg) { m.Question[0].Name = "example.org." },
		"another type":     func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeAAAA },
		"another class":    func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassHESIOD },
		"no question":      func(m *dns.Msg) { m.Question = nil },
		"two questions":    func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) },
		"a name too long":  func(m *dns.Msg) { m.Question[0].Name = strings.Repeat("a.", 200) },
		"NXDOMAIN (silly)": func(m *dns.Msg) { m.Rcode = dns.RcodeNameError },
	} {
		m := message(t, "www.example.org", dns.TypeA, "www.example.org. 60 A 192.0.2.1")
		q, _ := ReadQuestion(m)
		edit(m)
		c := Check(q, m, 64)
		if len(c.Addrs) != 0 || (c.Reason == "") != (m.Rcode != 0) {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// naive is Check's twin: it follows every CNAME there is by comparing texts.
func naive(q string, rrs []dns.RR) (addrs map[string]bool) {
	addrs = map[string]bool{}
	at := q
	for range wire.MaxChain {
		for _, rr := range rrs {
			if a, ok := rr.(*dns.A); ok && strings.EqualFold(a.Hdr.Name, at) {
				addrs[a.A.String()] = true
			}
		}
		next := ""
		for _, rr := range rrs {
			if c, ok := rr.(*dns.CNAME); ok && strings.EqualFold(c.Hdr.Name, at) && next == "" {
				next = c.Target
			}
		}
		if next == "" {
			return addrs
		}
		at = next
	}
	return nil // a circle
}

func TestCheckLikeItsTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	names := []string{"www.example.org.", "WWW.example.ORG.", "a.test.", "A.test.", "b.test.", "c.test.", "d.test."}
	pick := func() string { return names[r.IntN(len(names))] }
	circles := 0
	for range 5000 {
		var rrs []string
		for range r.IntN(7) {
			if r.IntN(2) == 0 {
				rrs = append(rrs, pick()+" 60 CNAME "+pick())
				continue
			}
			rrs = append(rrs, fmt.Sprintf("%s 60 A 192.0.2.%d", pick(), r.IntN(250)))
		}
		m := message(t, "www.example.org", dns.TypeA, rrs...)
		q, _ := ReadQuestion(m)
		c, want := Check(q, m, 64), naive("www.example.org.", m.Answer)
		diff.MustEqual(t, c.Reason != "", want == nil, rrs, c, "twin", want)
		if want == nil {
			circles++
			continue
		}
		got := map[string]bool{}
		for _, a := range c.Addrs {
			got[a.Addr.String()] = true
		}
		diff.MustEqual(t, fmt.Sprint(want), fmt.Sprint(got), rrs, got, "twin", want)
	}
	if circles == 0 {
		t.Error("no circle was drawn")
	}
}

// TestFirstAlias: the first of the chain is the target of the question's own CNAME.
func TestFirstAlias(t *testing.T) {
	q := wire.Question{Name: policytest.Name("www.example.org.corp.test"), Type: dns.TypeA, Class: dns.ClassINET}
	base := policytest.Name("www.example.org")
	first := func(m *dns.Msg) bool {
		c := Check(q, m, 0)
		return len(c.Chain) > 0 && c.Chain[0] == base
	}
	for _, tt := range []struct {
		rr   string
		want bool
	}{
		{"www.example.org.corp.test. 60 CNAME www.example.org.", true},
		{"www.example.org.corp.test. 60 CNAME other.test.", false},
		{"x.corp.test. 60 CNAME www.example.org.", false},
		{"www.example.org.corp.test. 60 A 192.0.2.1", false},
	} {
		diff.Equal(t, tt.want, first(message(t, "www.example.org.corp.test", dns.TypeA, tt.rr)), tt.rr)
	}
	far := message(t, "www.example.org.corp.test", dns.TypeA, "www.example.org.corp.test. 60 CNAME x.test.", "x.test. 60 CNAME www.example.org.")
	if first(far) {
		t.Error("a second CNAME counts as the first")
	}
}

func FuzzCheck(f *testing.F) {
	for _, rrs := range [][]string{
		{"www.example.org. 60 A 192.0.2.1"},
		{"www.example.org. 60 CNAME a.test.", "a.test. 60 A 192.0.2.1"},
		{"www.example.org. 60 HTTPS 1 . ipv4hint=192.0.2.1"},
	} {
		m := message(f, "www.example.org", dns.TypeA, rrs...)
		packet, err := m.Pack()
		fatal.If(f, err)
		f.Add(packet)
	}
	q := wire.Question{Name: policytest.Name("www.example.org"), Type: dns.TypeA, Class: dns.ClassINET}
	f.Fuzz(func(t *testing.T, packet []byte) {
		m := new(dns.Msg)
		if m.Unpack(packet) != nil {
			return
		}
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS, dns.TypeANY} {
			q.Type = qtype
			c := Check(q, m, 8)
			if len(c.Addrs) > 8 || len(c.Chain) > wire.MaxChain || c.Reason != "" && len(c.Addrs) > 0 {
				t.Fatalf("%+v", c)
			}
			owners := append([]fqdn.Name{q.Name}, c.Chain...)
			for _, a := range c.Addrs {
				if !a.Addr.IsValid() || a.Addr.Is4In6() || a.TTL > wire.MaxTTL {
					t.Fatalf("%+v", a)
				}
				owner, err := fqdn.ParseName(m.Answer[a.Record].Header().Name)
				known := false
				for _, o := range owners {
					known = known || o == owner
				}
				if err != nil || !known {
					t.Fatalf("%v is not reached", m.Answer[a.Record])
				}
			}
		}
	})
}

func mustAddr(s string) netip.Addr { return netip.MustParseAddr(s) }

// The words of the tests.
var (
	newQuery = wiretest.Query
	packed   = wiretest.Packed
	parsed   = wiretest.Parsed
)

// message is an honest answer of these records.
func message(t testing.TB, q string, qtype uint16, rrs ...string) *dns.Msg {
	t.Helper()
	return wiretest.Answer(t, newQuery(q, qtype), rrs...)
}
