package proxy

import (
	"net/netip"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/fatal"
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
		"two OPT records": {func(m *dns.Msg) {
			m.SetEdns0(1232, false)
			m.Extra = append(m.Extra, m.Extra[0])
		}, dns.RcodeFormatError},
	} {
		l := newLab(t, labTable)
		m := newQuery("www.example.org", dns.TypeA)
		tt.edit(m)
		r := l.send("10.1.0.2", m)
		if r.Rcode != tt.rcode || r.Opcode != m.Opcode || len(r.Answer) != 0 || len(l.up.asked) != 0 || len(l.granter.Grants()) != 0 {
			t.Errorf("%s: %v", name, r)
		}
		if r.RecursionAvailable != (m.Opcode == dns.OpcodeQuery) {
			t.Errorf("%s: recursion available %v", name, r.RecursionAvailable)
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
		packet := packed(t, m)
		who := l.s.identify(netip.MustParseAddr("10.1.0.6"), netip.Addr{})
		out := l.s.handle(packet, who, false)
		if most := max(512, int(tt.size)); len(out) > most {
			t.Errorf("%s: %d bytes", name, len(out))
		}
		r := new(dns.Msg)
		fatal.If(t, r.Unpack(out))
		opt := r.IsEdns0()
		if r.Truncated != tt.truncated || (opt != nil) != (tt.size > 0) || len(r.Answer) == 60 == tt.truncated {
			t.Errorf("%s: TC %v, OPT %v, %d records", name, r.Truncated, opt, len(r.Answer))
		}
		if opt != nil && (opt.UDPSize() != wire.AdvertisedSize || opt.Do() != tt.do) {
			t.Errorf("%s: OPT %v", name, opt)
		}
		if out = l.s.handle(packet, who, true); r.Unpack(out) != nil || r.Truncated || len(r.Answer) != 60 {
			t.Errorf("%s over TCP: TC %v, %d records", name, r.Truncated, len(r.Answer))
		}
	}
}

func TestClientsSpellingIsReturned(t *testing.T) {
	l := newLab(t, labTable)
	r := l.ask("10.1.0.2", "wWw.ExAmple.oRg", dns.TypeA)
	equal(t, "answer", data(r.Answer), []string{"wWw.ExAmple.oRg. 300 CNAME edge.cdn.test.", "edge.cdn.test. 120 A 192.0.2.1", "edge.cdn.test. 120 A 192.0.2.2"})
	if r.Question[0].Name != "wWw.ExAmple.oRg." || !l.up.wasAsked("www.example.org A") {
		t.Errorf("question %v, asked %v", r.Question, l.up.asked)
	}
}

func TestUnreadableQueryIsAFormatError(t *testing.T) {
	l := newLab(t, nil)
	packet := packed(t, newQuery("www.example.org", dns.TypeA))
	who := l.s.identify(netip.MustParseAddr("10.1.0.2"), netip.Addr{})
	out := l.s.handle(packet[:len(packet)-3], who, false)
	r := new(dns.Msg)
	if err := r.Unpack(out); err != nil || r.Rcode != dns.RcodeFormatError || l.s.Stats().Malformed != 1 {
		t.Errorf("%v, %v", r, err)
	}
}
