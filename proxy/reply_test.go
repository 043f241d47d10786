package proxy

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/wire"
)

func TestRefusedQueries(t *testing.T) {
	for name, tt := range map[string]struct {
		edit  func(*dns.Msg)
		rcode int
	}{
		"notify":        {func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }, dns.RcodeNotImplemented},
		"update":        {func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate }, dns.RcodeNotImplemented},
		"no question":   {func(m *dns.Msg) { m.Question = nil }, dns.RcodeFormatError},
		"two questions": {func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }, dns.RcodeFormatError},
		"AXFR":          {func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeAXFR }, dns.RcodeRefused},
		"IXFR":          {func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeIXFR }, dns.RcodeRefused},
		"OPT":           {func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeOPT }, dns.RcodeFormatError},
		"TKEY":          {func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeTKEY }, dns.RcodeNotImplemented},
		"version.bind": {func(m *dns.Msg) {
			m.Question[0] = dns.Question{Name: "Version.BIND.", Qtype: dns.TypeTXT, Qclass: dns.ClassCHAOS}
		}, dns.RcodeRefused},
		"EDNS version 1": {func(m *dns.Msg) {
			m.SetEdns0(1232, false)
			m.IsEdns0().SetVersion(1)
		}, dns.RcodeBadVers},
	} {
		l := newLab(t, labTable)
		m := newQuery("www.example.org", dns.TypeA)
		tt.edit(m)
		r := l.send("10.1.0.2", m)
		if r.Rcode != tt.rcode || r.Opcode != m.Opcode || len(r.Answer) != 0 || len(l.up.asked) != 0 || len(l.granter.Grants()) != 0 {
			t.Errorf("%s: %v", name, r)
		}
	}
}

func TestEDNSBothWays(t *testing.T) {
	table := map[string][]string{"big.test A": nil}
	for i := range 60 {
		table["big.test A"] = append(table["big.test A"], "big.test. 60 IN A 198.18.1."+itoa(i))
	}
	for name, tt := range map[string]struct {
		size      uint16 // 0 sends no OPT
		do        bool
		truncated bool
	}{
		"no EDNS":        {truncated: true},
		"size below 512": {size: 100, truncated: true},
		"1232":           {size: 1232},
		"4096, DO":       {size: 4096, do: true},
	} {
		l := newLab(t, table)
		m := newQuery("big.test", dns.TypeA)
		if tt.size > 0 {
			m.SetEdns0(tt.size, tt.do)
		}
		packet, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		who := l.s.identify(netip.MustParseAddr("10.1.0.6"), netip.Addr{})
		out := l.s.answer(packet, who, false, nil)
		if most := max(512, int(tt.size)); len(out) > most {
			t.Errorf("%s: %d bytes", name, len(out))
		}
		r := new(dns.Msg)
		if err := r.Unpack(out); err != nil {
			t.Fatal(err)
		}
		opt := r.IsEdns0()
		if r.Truncated != tt.truncated || (opt != nil) != (tt.size > 0) || len(r.Answer) == 60 == tt.truncated {
			t.Errorf("%s: TC %v, OPT %v, %d records", name, r.Truncated, opt, len(r.Answer))
		}
		if opt != nil && (opt.UDPSize() != wire.AdvertisedSize || opt.Do() != tt.do) {
			t.Errorf("%s: OPT %v", name, opt)
		}
		if out = l.s.answer(packet, who, true, nil); r.Unpack(out) != nil || r.Truncated || len(r.Answer) != 60 {
			t.Errorf("%s over TCP: TC %v, %d records", name, r.Truncated, len(r.Answer))
		}
	}
}

func TestClientsOptionsStayBehind(t *testing.T) {
	l := newLab(t, labTable)
	m := newQuery("www.example.org", dns.TypeA)
	m.SetEdns0(1232, true)
	m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0011223344556677"}}
	r := l.send("10.1.0.2", m)
	if opt := r.IsEdns0(); opt == nil || len(opt.Option) != 0 {
		t.Errorf("OPT %v", opt)
	}
}

func TestExtendedErrorIsPassedOn(t *testing.T) {
	query := newQuery("www.example.org", dns.TypeA)
	query.SetEdns0(1232, false)
	up := new(dns.Msg)
	up.SetReply(query)
	up.SetEdns0(4096, true)
	up.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeBlocked}, &dns.EDNS0_NSID{Code: dns.EDNS0NSID}}
	opt := relay(query, up).IsEdns0()
	if len(opt.Option) != 1 || opt.Option[0].Option() != dns.EDNS0EDE || opt.Do() || opt.UDPSize() != wire.AdvertisedSize {
		t.Errorf("OPT %v", opt)
	}
	if r := relay(newQuery("www.example.org", dns.TypeA), up); r.IsEdns0() != nil {
		t.Error("OPT to a client that sent none")
	}
}

func TestHeaderBits(t *testing.T) {
	query := newQuery("www.example.org", dns.TypeA)
	query.RecursionDesired, query.CheckingDisabled = false, true
	up := new(dns.Msg)
	up.SetReply(query)
	up.AuthenticatedData, up.RecursionAvailable, up.RecursionDesired = true, true, true
	r := relay(query, up)
	if r.RecursionDesired || !r.CheckingDisabled || r.AuthenticatedData || !r.RecursionAvailable || !r.Response {
		t.Errorf("header %+v", r.MsgHdr)
	}
	query.AuthenticatedData = true
	if !relay(query, up).AuthenticatedData {
		t.Error("AD is lost to a client that asked for it")
	}
}

func TestClientsSpellingComesBack(t *testing.T) {
	l := newLab(t, labTable)
	r := l.ask("10.1.0.2", "wWw.ExAmple.oRg", dns.TypeA)
	equal(t, "answer", data(r.Answer), []string{"wWw.ExAmple.oRg. 300 CNAME edge.cdn.test.", "edge.cdn.test. 120 A 192.0.2.1", "edge.cdn.test. 120 A 192.0.2.2"})
	if r.Question[0].Name != "wWw.ExAmple.oRg." || !l.up.wasAsked("www.example.org A") {
		t.Errorf("question %v, asked %v", r.Question, l.up.asked)
	}
}

func TestTrimLeavesTheSharedMessageAlone(t *testing.T) {
	m := message(t, "www.example.org", dns.TypeHTTPS,
		"www.example.org. 9000 CNAME a.test.", "a.test. 9000 HTTPS 1 . ipv4hint=192.0.2.1,192.0.2.2", "x.test. 9000 A 192.0.2.66")
	before := m.String()
	query := newQuery("WWW.example.org", dns.TypeHTTPS)
	q, _ := readQuestion(m)
	c := Check(q, m, 64)
	r := relay(query, m)
	trim(r, c.Addrs[:1], 60)
	if m.String() != before {
		t.Errorf("changed to\n%s\nfrom\n%s", m, before)
	}
	if all := r.String(); strings.Contains(all, "192.0.2.2") || strings.Contains(all, "192.0.2.66") || strings.Contains(all, "9000") {
		t.Errorf("reply\n%s", all)
	}
}

func TestTrimHints(t *testing.T) {
	for _, tt := range []struct {
		rr, want string // want "" drops the record
		keep     []string
	}{
		{"1 . alpn=h2 ipv4hint=192.0.2.1,192.0.2.2", `1 . alpn="h2" ipv4hint="192.0.2.2"`, []string{"192.0.2.2"}},
		{"1 . alpn=h2 ipv4hint=192.0.2.1 ipv6hint=2001:db8::1", `1 . alpn="h2" ipv6hint="2001:db8::1"`, []string{"2001:db8::1"}},
		{"1 . alpn=h2 ipv4hint=192.0.2.1", `1 . alpn="h2"`, nil},
		{"1 . mandatory=ipv4hint ipv4hint=192.0.2.1", "", nil},
		{"1 . mandatory=ipv4hint ipv4hint=192.0.2.1", `1 . mandatory="ipv4hint" ipv4hint="192.0.2.1"`, []string{"192.0.2.1"}},
		{"1 . alpn=h2", `1 . alpn="h2"`, nil},
		{"0 a.test.", "0 a.test.", nil},
	} {
		m := message(t, "www.example.org", dns.TypeHTTPS, "www.example.org. 60 HTTPS "+tt.rr)
		q, _ := readQuestion(m)
		var kept []wire.Address
		for _, a := range Check(q, m, 64).Addrs {
			for _, k := range tt.keep {
				if a.Addr.String() == k {
					kept = append(kept, a)
				}
			}
		}
		trim(m, kept, 3600)
		got := ""
		if len(m.Answer) == 1 {
			got = m.Answer[0].String()[strings.Index(m.Answer[0].String(), "HTTPS\t")+6:]
		}
		if got != tt.want {
			t.Errorf("%s with %v: %q, want %q", tt.rr, tt.keep, got, tt.want)
		}
	}
}

func TestUnreadableQueryIsAFormatError(t *testing.T) {
	l := newLab(t, nil)
	packet, err := newQuery("www.example.org", dns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	who := l.s.identify(netip.MustParseAddr("10.1.0.2"), netip.Addr{})
	out := l.s.answer(packet[:len(packet)-3], who, false, nil)
	r := new(dns.Msg)
	if err := r.Unpack(out); err != nil || r.Rcode != dns.RcodeFormatError || l.s.Stats().Malformed != 1 {
		t.Errorf("%v, %v", r, err)
	}
}

func TestPackThatFailsIsServfail(t *testing.T) {
	query := newQuery("www.example.org", dns.TypeA)
	r := respond(query, dns.RcodeSuccess)
	r.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: "www.example.org.", Rrtype: dns.TypeA, Class: dns.ClassINET}, A: []byte{1, 2, 3}}}
	got := new(dns.Msg)
	if err := got.Unpack(pack(query, r, true)); err != nil || got.Rcode != dns.RcodeServerFailure || got.Id != query.Id {
		t.Errorf("%v, %v", got, err)
	}
}

// FuzzServe: whatever a pod sends gets a readable reply with its id, or silence,
// and never a grant of an address that its name's answer does not hold.
func FuzzServe(f *testing.F) {
	for _, m := range []*dns.Msg{
		newQuery("www.example.org", dns.TypeA), newQuery("half.wild.test", dns.TypeA),
		newQuery("www.example.org.corp.test", dns.TypeA), newQuery("alive.namegate.invalid", dns.TypeTXT), newQuery(".", dns.TypeNS),
	} {
		packet, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packet)
	}
	l := newLab(f, labTable)
	who := l.s.identify(netip.MustParseAddr("10.1.0.2"), netip.Addr{})
	bad := []netip.Addr{netip.MustParseAddr("6.6.6.6"), netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("192.0.2.66"), netip.MustParseAddr("10.96.0.1")}
	f.Fuzz(func(t *testing.T, packet []byte) {
		if !wire.IsQuery(packet) {
			return
		}
		l.granter.grants, l.log.recs, l.up.asked = nil, nil, nil
		for _, tcp := range []bool{false, true} {
			out := l.s.answer(packet, who, tcp, nil)
			r := new(dns.Msg)
			if err := r.Unpack(out); err != nil || !r.Response || out[0] != packet[0] || out[1] != packet[1] {
				t.Fatalf("% x: %v", out, err)
			}
			if !tcp && len(out) > wire.MaxUDP {
				t.Fatalf("%d bytes over UDP", len(out))
			}
		}
		for _, a := range bad {
			if l.granter.Granted(who.view.Pod.PodRef, a) {
				t.Fatalf("granted %s", a)
			}
		}
	})
}
