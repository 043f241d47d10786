package scenarios

import (
	"crypto"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// digZone is what dig and delv ask for.
const digZone = `
	plain.dig.test. 60 IN A 198.18.200.1
	plain.dig.test. 60 IN AAAA 2001:db8:c:200::1
	tcp.dig.test. 60 IN A 198.18.200.2
	noedns.dig.test. 60 IN A 198.18.200.3
	case.dig.test. 60 IN A 198.18.200.4
	signed.dig.test. 60 IN A 198.18.200.5
	six.dig.test. 60 IN A 198.18.200.6
	alias.dig.test. 60 IN CNAME target.cdn.example.
	target.cdn.example. 60 IN A 198.18.200.7
	one.dig.test. 60 IN A 198.18.200.8
	two.dig.test. 60 IN A 198.18.200.9
	https.dig.test. 60 IN HTTPS 1 . alpn=h2 ipv4hint=198.18.200.10 ipv6hint=2001:db8:c:200::10
	delv.dig.test. 60 IN A 198.18.200.11
	other.dig.example. 60 IN A 198.18.200.12
	cookie.dig.test. 60 IN A 198.18.200.13
	option.dig.test. 60 IN A 198.18.200.14
	web-dig.shop.svc.cluster.local. 60 IN A 198.18.200.15
	_ldap._tcp.dig.test. 60 IN SRV 10 20 389 ldap.dig.test.
	dig.test. 60 IN MX 10 mail.dig.test.
	text.dig.test. 60 IN TXT "v=spf1 -all" "second string"
	caa.dig.test. 60 IN CAA 0 issue "ca.example.org"
	odd.dig.test. 60 IN TYPE65280 \# 4 c6120001`

// digTest is one run of dig or kdig in pod a.
type digTest struct {
	name string
	args string
	want []string // expressions that its print matches
	not  []string // and does not
	told int      // how many addresses it tells, each open
	shut bool     // they are not open
}

// kdigTests run kdig, for which other spellings and defaults hold than for dig.
var kdigTests = []digTest{
	{name: "A", args: "plain.dig.test", told: 1, want: []string{`status: NOERROR`, `Flags: qr rd ra;`}, not: []string{`WARNING|EDNS`}},
	{name: "EDNS", args: "+edns plain.dig.test", told: 1, want: []string{`Version: 0; flags: ; UDP size: 1232 B; ext-rcode: NOERROR`}, not: []string{`WARNING`}},
	{name: "TCP", args: "+tcp tcp.dig.test", told: 1, want: []string{`\(TCP\)`}, not: []string{`WARNING`}},
	{name: "TCP fast open", args: "+tcp +fastopen tcp.dig.test", told: 1, want: []string{`\(TCP\)`}, not: []string{`WARNING`}},
	{name: "two names on one TCP connection", args: "+tcp +keepopen one.dig.test two.dig.test", told: 2, not: []string{`WARNING`}},
	{name: "no EDNS, large", args: "large0.dig.test", told: 60, want: []string{`truncated reply from .*, retrying over TCP`, `\(TCP\)`}},
	{name: "512 bytes, large, truncated is good enough", args: "+bufsize=512 +ignore large2.dig.test", want: []string{`Flags: qr tc rd ra;`}},
	{name: "4096 bytes, large", args: "+bufsize=4096 large4.dig.test AAAA", told: 60, want: []string{`\(UDP\)`}, not: []string{`WARNING`}},
	{name: "DO", args: "+dnssec signed.dig.test", told: 1, want: []string{`flags: do;`, `RRSIG\s+A 13 3 60`}, not: []string{`WARNING`}},
	{name: "CD and AD", args: "+cd +adflag signed.dig.test", told: 1, want: []string{`Flags: qr rd ra.* cd`}},
	{name: "Z", args: "+zflag plain.dig.test", told: 1, want: []string{`Flags: qr rd ra;`}},
	{name: "cookie", args: "+cookie cookie.dig.test", told: 1, want: []string{`status: NOERROR`}, not: []string{`WARNING|COOKIE`}},
	{name: "an option that no server knows", args: "+ednsopt=65001:cafe option.dig.test", told: 1, not: []string{`WARNING|65001`}},
	{name: "client subnet", args: "+subnet=10.0.0.0/8 option.dig.test", told: 1, not: []string{`WARNING`}},
	{name: "padding", args: "+padding=128 option.dig.test", told: 1, not: []string{`WARNING`}},
	{name: "expire", args: "+expire option.dig.test", told: 1, not: []string{`WARNING`}},
	{name: "EDNS version 1", args: "+edns=1 plain.dig.test", want: []string{`ext-rcode: BADVERS`, `Version: 0;`}},
	{name: "a chain", args: "alias.dig.test", told: 1, want: []string{`CNAME\s+target\.cdn\.example\.`}},
	{name: "an IPv6 resolver", args: "six.dig.test @2001:db8::53", told: 1, want: []string{`From 2001:db8::53@53\(UDP\)`}},
	{name: "JSON", args: "+json plain.dig.test", told: 1, want: []string{`"RCODE":\s*0`, `"rdataA":\s*"198\.18\.200\.1"`}},
	{name: "NXDOMAIN", args: "absent.dig.test", want: []string{`status: NXDOMAIN`}, not: []string{`WARNING`}},
	{name: "HTTPS", args: "+short https.dig.test HTTPS", told: 2, want: []string{`1 \. alpn=`}},
	{name: "a type that no server knows", args: "+short odd.dig.test TYPE65280", want: []string{`\\# 4 C6120001`}},
	{name: "a transfer", args: "dig.test AXFR", want: []string{`REFUSED|failed`}},
}

// digTests run dig.
var digTests = []digTest{
	{name: "A", args: "plain.dig.test", told: 1, want: []string{`status: NOERROR`, `flags: qr rd ra[ ;]`, `EDNS: version: 0, flags:; udp: \d+`}},
	{name: "short AAAA", args: "+short plain.dig.test AAAA", told: 1, want: []string{`^2001:db8:c:200::1\n$`}},
	{name: "TCP", args: "+tcp tcp.dig.test", told: 1, want: []string{`status: NOERROR`, `\(TCP\)`}},
	{name: "two names on one TCP connection", args: "+tcp +keepopen one.dig.test two.dig.test", told: 2, want: []string{`(?s)status: NOERROR.*status: NOERROR`}},
	{name: "no EDNS", args: "+noedns noedns.dig.test", told: 1, want: []string{`status: NOERROR`}, not: []string{`EDNS`}},
	{name: "no EDNS, large", args: "+noedns large0.dig.test", told: 60, want: []string{`Truncated, retrying in TCP mode`}},
	{name: "512 bytes, large", args: "+bufsize=512 large1.dig.test", told: 60, want: []string{`Truncated, retrying in TCP mode`, `\(TCP\)`}},
	{name: "512 bytes, large, truncated is good enough", args: "+bufsize=512 +ignore large2.dig.test", want: []string{`flags: qr tc rd ra`}},
	{name: "1232 bytes, large", args: "+bufsize=1232 large3.dig.test AAAA", told: 60, want: []string{`Truncated, retrying in TCP mode`}},
	{name: "4096 bytes, large", args: "+bufsize=4096 large4.dig.test AAAA", told: 60, want: []string{`\(UDP\)`}, not: []string{`Truncated`}},
	{name: "DO", args: "+dnssec signed.dig.test", told: 1, want: []string{`flags: do;`, `RRSIG\s+A 13 3 60`}},
	{name: "no DO", args: "+nodnssec signed.dig.test", told: 1, not: []string{`RRSIG`, `flags: do`}},
	{name: "CD and AD", args: "+cd +adflag signed.dig.test", told: 1, want: []string{`status: NOERROR`, `flags: qr rd ra.* cd`}},
	{name: "cookie", args: "+cookie=0123456789abcdef cookie.dig.test", told: 1, want: []string{`status: NOERROR`}, not: []string{`bad|malformed`}},
	{name: "no cookie", args: "+nocookie cookie.dig.test", told: 1, want: []string{`status: NOERROR`}, not: []string{`COOKIE`}},
	{name: "an option that nobody knows", args: "+ednsopt=65001:cafe option.dig.test", told: 1, want: []string{`status: NOERROR`}},
	{name: "client subnet", args: "+subnet=10.0.0.0/8 option.dig.test", told: 1, want: []string{`status: NOERROR`}},
	{name: "padding", args: "+padding=128 option.dig.test", told: 1, want: []string{`status: NOERROR`}},
	{name: "EDNS flags", args: "+ednsflags=0x7fff option.dig.test", told: 1, want: []string{`status: NOERROR`}},
	{name: "EDNS version 1", args: "+edns=1 +noednsnegotiation plain.dig.test", want: []string{`status: BADVERS`}},
	{name: "EDNS version 1, negotiated", args: "+edns=1 plain.dig.test", told: 1, want: []string{`status: NOERROR`}},
	{name: "mixed case", args: "cAsE.DiG.tEsT", told: 1, want: []string{`;cAsE\.DiG\.tEsT\.\s+IN\s+A`, `\ncAsE\.DiG\.tEsT\.\s+\d+\s+IN\s+A`}},
	{name: "a chain", args: "alias.dig.test", told: 1, want: []string{`alias\.dig\.test\.\s+\d+\s+IN\s+CNAME\s+target\.cdn\.example\.`}},
	{name: "a resolver with an IPv6 address", args: "@2001:db8::53 six.dig.test", told: 1, want: []string{`SERVER: 2001:db8::53#53`}},
	{name: "search path", args: "+search web-dig", told: 1, want: []string{`web-dig\.shop\.svc\.cluster\.local\.`}},
	{name: "no policy matches", args: "other.dig.example", told: 1, shut: true, want: []string{`status: NOERROR`}},
	{name: "NXDOMAIN", args: "absent.dig.test", want: []string{`status: NXDOMAIN`}},
	{name: "no such type", args: "text.dig.test A", want: []string{`status: NOERROR`, `ANSWER: 0`}},
	{name: "SRV", args: "+short _ldap._tcp.dig.test SRV", want: []string{`^10 20 389 ldap\.dig\.test\.\n$`}},
	{name: "MX", args: "+short dig.test MX", want: []string{`^10 mail\.dig\.test\.\n$`}},
	{name: "TXT", args: "+short text.dig.test TXT", want: []string{`^"v=spf1 -all" "second string"\n$`}},
	{name: "CAA", args: "+short caa.dig.test CAA", want: []string{`^0 issue "ca\.example\.org"\n$`}},
	{name: "HTTPS", args: "+short https.dig.test HTTPS", want: []string{`^1 \. alpn="h2" ipv4hint=198\.18\.200\.10 ipv6hint=2001:db8:c:200::10\n$`}, told: 2},
	{name: "a type that nobody knows", args: "+short odd.dig.test TYPE65280", want: []string{`^\\# 4 C6120001\n$`}},
	{name: "version.bind", args: "version.bind CH TXT", want: []string{`status: (NOERROR|REFUSED)`}},
	{name: "a transfer", args: "+noall +answer +comments dig.test AXFR", want: []string{`Transfer failed`}},
	{name: "an odd opcode", args: "+opcode=status plain.dig.test", want: []string{`status: NOTIMP`}},
	{name: "a header alone", args: "+header-only", want: []string{`status: FORMERR`}},
}

// digAddress finds the addresses in dig's print, also in hints.
var digAddress = regexp.MustCompile(`198\.18\.[\d.]+|2001:db8:c:[\da-f:]+`)

func digAnswers(out string) []netip.Addr {
	return told(strings.Join(digAddress.FindAllString(out, -1), " "))
}

// digRecords are large answers, and signatures for queries with DO.
func digRecords(z *zone) {
	z.add(digZone)
	for i := range 5 {
		r := clientRow{ask: "large" + string(rune('0'+i)) + ".dig.test", host: 100, many: 60}
		z.add(r.records(210+i, ""))
	}
	z.say("signed.dig.test", func(q *dns.Msg) *dns.Msg {
		r := new(dns.Msg).SetReply(q)
		r.RecursionAvailable = true
		r.Answer = []dns.RR{a("signed.dig.test.", 60, netip.MustParseAddr("198.18.200.5"))}
		if opt := q.IsEdns0(); opt != nil {
			r.SetEdns0(1232, opt.Do())
			if opt.Do() {
				sig, err := dns.NewRR("signed.dig.test. 60 IN RRSIG A 13 3 60 20300101000000 20200101000000 1 dig.test. c2lnbmF0dXJl")
				if err != nil {
					panic(err)
				}
				r.Answer = append(r.Answer, sig)
			}
		}
		return r
	})
}

// digSigned adds a signed zone, in which the address of one name is not the signed one, and
// returns the file of its trust anchor.
func digSigned(t *testing.T, z *zone) (anchors string) {
	t.Helper()
	key := &dns.DNSKEY{Hdr: dns.RR_Header{Name: "secure.test.", Rrtype: dns.TypeDNSKEY, Class: dns.ClassINET, Ttl: 60}, Flags: 257, Protocol: 3, Algorithm: dns.ECDSAP256SHA256}
	secret, err := key.Generate(256)
	fatal.If(t, err)
	sign := func(rr dns.RR) []dns.RR {
		sig := &dns.RRSIG{Algorithm: key.Algorithm, KeyTag: key.KeyTag(), SignerName: key.Hdr.Name,
			Inception: uint32(time.Now().Add(-time.Hour).Unix()), Expiration: uint32(time.Now().Add(time.Hour).Unix())}
		fatal.If(t, sig.Sign(secret.(crypto.Signer), []dns.RR{rr}))
		return []dns.RR{rr, sig}
	}
	www, forged := a("www.secure.test.", 60, netip.MustParseAddr("198.18.200.16")), a("forged.secure.test.", 60, netip.MustParseAddr("198.18.200.17"))
	alias := &dns.CNAME{Hdr: dns.RR_Header{Name: "alias.secure.test.", Rrtype: dns.TypeCNAME, Class: dns.ClassINET, Ttl: 60}, Target: "www.secure.test."}
	answers := map[string][]dns.RR{"www.secure.test.": sign(www), "alias.secure.test.": append(sign(alias), sign(www)...), "forged.secure.test.": sign(forged), "secure.test.": sign(key)}
	forged.(*dns.A).A = net.IPv4(198, 18, 200, 18)
	for name, answer := range answers {
		z.say(name, func(q *dns.Msg) *dns.Msg {
			r := new(dns.Msg).SetReply(q)
			r.RecursionAvailable = true
			opt := q.IsEdns0()
			do := opt != nil && opt.Do()
			r.SetEdns0(1232, do)
			for _, rr := range answer {
				_, signature := rr.(*dns.RRSIG)
				if (name == "secure.test.") == (q.Question[0].Qtype == dns.TypeDNSKEY) && (do || !signature) {
					r.Answer = append(r.Answer, rr)
				}
			}
			return r
		})
	}
	anchors = filepath.Join(t.TempDir(), "anchors")
	fatal.If(t, os.WriteFile(anchors, fmt.Appendf(nil, "trust-anchors { secure.test. static-key 257 3 %d %q; };\n", key.Algorithm, key.PublicKey), 0o644))
	return anchors
}

// TestClientsDig asks with dig, kdig and delv whatever they can ask.
func TestClientsDig(t *testing.T) {
	t.Parallel()
	needed(t, "dig", "delv", "kdig")
	s, etc, _ := clientsStage(t)
	digRecords(s.zone)
	for _, of := range []struct {
		program, prefix string
		tests           []digTest
	}{{"dig +tries=1", "", digTests}, {"kdig +retry=0", "kdig: ", kdigTests}} {
		for _, test := range of.tests {
			t.Run(of.prefix+test.name, func(t *testing.T) {
				out, err := s.Pod("a").RunIn(etc, strings.Fields(of.program+" "+test.args)...)
				if err != nil && test.name != "a transfer" {
					t.Fatal(err)
				}
				s.printed(t, out, test.want, test.not, test.told, test.shut)
			})
		}
	}
	t.Run("delv", func(t *testing.T) {
		out, err := s.Pod("a").RunIn(etc, "delv", "-i", "delv.dig.test")
		fatal.If(t, err)
		s.printed(t, out, []string{`delv\.dig\.test\.\s+\d+\s+IN\s+A\s+198`}, []string{`failed`}, 1, false)
	})
	t.Run("delv and a name that is not there", func(t *testing.T) {
		out, _ := s.Pod("a").RunIn(etc, "delv", "-i", "absent.dig.test")
		s.printed(t, out, []string{`ncache nxdomain`}, nil, 0, false)
	})
	anchors := digSigned(t, s.zone)
	t.Run("delv that validates", func(t *testing.T) {
		out, err := s.Pod("a").RunIn(etc, "delv", "-a", anchors, "+root=secure.test", "www.secure.test")
		fatal.If(t, err)
		s.printed(t, out, []string{`; fully validated`}, []string{`failed`}, 1, false)
	})
	t.Run("delv that validates an alias", func(t *testing.T) {
		out, err := s.Pod("a").RunIn(etc, "delv", "-a", anchors, "+root=secure.test", "alias.secure.test")
		fatal.If(t, err)
		s.printed(t, out, []string{`; fully validated`, `CNAME\s+www\.secure\.test`}, []string{`failed`}, 1, false)
	})
	t.Run("delv that validates and a forged answer", func(t *testing.T) {
		out, _ := s.Pod("a").RunIn(etc, "delv", "-a", anchors, "+root=secure.test", "forged.secure.test")
		s.printed(t, out, []string{`RRSIG failed to verify`}, []string{`fully validated`}, 0, false)
	})
}

// printed asserts a program's output, and that the addresses in it are open.
func (s *stage) printed(t *testing.T, out string, want, not []string, many int, shut bool) {
	t.Helper()
	for _, w := range want {
		if !regexp.MustCompile(w).MatchString(out) {
			t.Errorf("printed:\n%s\nwithout %s", out, w)
		}
	}
	for _, w := range not {
		if regexp.MustCompile(w).MatchString(out) {
			t.Errorf("printed:\n%s\nwith %s", out, w)
		}
	}
	addrs := digAnswers(out)
	if many > 0 && len(addrs) != many {
		t.Errorf("told %d addresses, want %d:\n%s", len(addrs), many, out)
	}
	open := lab.Answered
	if shut {
		open = lab.Refused
	}
	for _, addr := range addrs {
		if got := s.Pod("a").ProbeFor("tcp", netip.AddrPortFrom(addr, 80), lab.PatienceFor(open)); got != open {
			t.Errorf("%s, which the client was told: %s, want %s", addr, got, open)
		}
	}
}
