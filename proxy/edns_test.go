package proxy

import (
	"net/netip"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// edited has each answer edited.
type edited struct {
	resolver
	edit func(a wire.Query, m *dns.Msg)
}

func (e edited) resolve(a wire.Query) (found, error) {
	got, err := e.resolver.resolve(a)
	if err == nil {
		e.edit(a, got.msg)
	}
	return got, err
}

// echoing answers with the options that it was asked with and more, and records the queries.
func echoing(t *testing.T, up resolver, asked *[]wire.Query, more ...dns.EDNS0) edited {
	return edited{up, func(a wire.Query, m *dns.Msg) {
		*asked = append(*asked, a)
		theirs := parsed(t, a.Pack(1)).IsEdns0()
		m.SetEdns0(1232, theirs.Do()).IsEdns0().Option = append(theirs.Option, more...)
	}}
}

func withOptions(options ...dns.EDNS0) *dns.Msg {
	m := newQuery("a.wild.test", dns.TypeA)
	m.SetEdns0(1232, false)
	m.IsEdns0().Option = options
	return m
}

// TestOptionsPassBothWays: options for the upstream reach it, and its options return;
// hop-by-hop options are not forwarded.
func TestOptionsPassBothWays(t *testing.T) {
	nsid, local := &dns.EDNS0_NSID{Code: dns.EDNS0NSID, Nsid: "aabb"}, &dns.EDNS0_LOCAL{Code: 65001, Data: []byte{1, 2}}
	cookie, padding := &dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "00112233445566778899aabbccddeeff"}, &dns.EDNS0_PADDING{Padding: make([]byte, 9)}
	keepalive, ede := &dns.EDNS0_TCP_KEEPALIVE{Code: dns.EDNS0TCPKEEPALIVE}, &dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeFiltered}
	for _, tt := range []struct {
		name           string
		asks, says     []dns.EDNS0
		passed, gotten []uint16
	}{
		{"none", nil, nil, nil, nil},
		{"NSID and an unknown one", []dns.EDNS0{nsid, local}, nil, []uint16{dns.EDNS0NSID, 65001}, []uint16{dns.EDNS0NSID, 65001}},
		{"neighbours' alone", []dns.EDNS0{cookie, padding, keepalive}, nil, nil, []uint16{dns.EDNS0COOKIE}},
		{"neighbours' among them", []dns.EDNS0{cookie, local, padding}, []dns.EDNS0{cookie}, []uint16{65001}, []uint16{65001, dns.EDNS0COOKIE}},
		{"an extended error", nil, []dns.EDNS0{ede}, nil, []uint16{dns.EDNS0EDE}},
		{"what nobody asked for", nil, []dns.EDNS0{nsid, local}, nil, nil},
		{"too long", []dns.EDNS0{&dns.EDNS0_LOCAL{Code: 65001, Data: make([]byte, 512)}}, nil, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newCacheLab(t, map[string][]string{"a.wild.test A": {"a.wild.test. 60 IN A 192.0.2.1"}})
			var asked []wire.Query
			l.use(l.config, echoing(t, l.up, &asked, tt.says...))
			r, _ := l.any("10.1.0.2", withOptions(tt.asks...))
			upstream := new(dns.Msg)
			fatal.If(t, upstream.Unpack(asked[0].Pack(1)))
			wantCodes(t, "the upstream is asked with", upstream, tt.passed)
			wantCodes(t, "the client gets", r, tt.gotten)
		})
	}
}

func wantCodes(t *testing.T, what string, m *dns.Msg, want []uint16) {
	t.Helper()
	opt := m.IsEdns0()
	if opt == nil {
		t.Fatalf("%s no EDNS", what)
	}
	var got []uint16
	for _, o := range opt.Option {
		got = append(got, o.Option())
	}
	diff.Fatal(t, want, got, what)
}

// TestOptionsAreTheAsksOwn: a pod's option is in no other pod's answer.
func TestOptionsAreTheAsksOwn(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"a.wild.test A": {"a.wild.test. 60 IN A 192.0.2.1"}})
	var asked []wire.Query
	l.use(l.config, echoing(t, l.up, &asked))
	for i, m := range []*dns.Msg{withOptions(&dns.EDNS0_LOCAL{Code: 65001, Data: []byte{1}}), withOptions(&dns.EDNS0_LOCAL{Code: 65001, Data: []byte{2}}), withOptions()} {
		r, hit := l.any("10.1.0.2", m)
		if len(asked) != i+1 || hit {
			t.Errorf("%d: the upstream was asked %d times", i, len(asked))
		}
		if want := len(m.IsEdns0().Option); len(r.IsEdns0().Option) != want {
			t.Errorf("%d: options %v", i, r.IsEdns0().Option)
		}
	}
}

// TestClientWithoutEDNSGetsNone, whatever was kept for others, and the other way round.
func TestClientWithoutEDNSGetsNone(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"a.wild.test A": {"a.wild.test. 60 IN A 192.0.2.1"}})
	for range 3 {
		for _, m := range []*dns.Msg{newQuery("a.wild.test", dns.TypeA), withOptions()} {
			r, _ := l.any("10.1.0.2", m)
			if (r.IsEdns0() == nil) != (m.IsEdns0() == nil) {
				t.Fatalf("asked with %v, answered with %v", m.IsEdns0(), r.IsEdns0())
			}
			if opt := r.IsEdns0(); opt != nil && (opt.UDPSize() != wire.AdvertisedSize || opt.Do() || opt.Version() != 0) {
				t.Errorf("%v", opt)
			}
		}
	}
}

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
		diff.Equal(t, m.Opcode == dns.OpcodeQuery, r.RecursionAvailable, name, "recursion available")
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
