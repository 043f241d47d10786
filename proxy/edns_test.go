package proxy

import (
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
