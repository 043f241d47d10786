package proxy

import (
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/diff"
)

// TestNXDOMAINCountsForItsType: a name whose server says NXDOMAIN to some types keeps the others,
// whichever is asked first, however long the answers hold, and with stale answers.
func TestNXDOMAINCountsForItsType(t *testing.T) {
	for what, lines := range map[string]string{"cache": "cache", "serve_stale": staled} {
		for _, ttl := range []string{"5", "0"} {
			for _, first := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS} {
				l := newCacheLab(t, map[string][]string{"a.wild.test A": {"a.wild.test. " + ttl + " IN A 192.0.2.1"},
					"a.wild.test AAAA": {"NXDOMAIN", soa + "20"}, "a.wild.test HTTPS": {"NXDOMAIN", soa + "20"}}, lines)
				for range 60 {
					for _, from := range []string{"10.1.0.2", "10.1.0.6"} {
						for _, qtype := range []uint16{first, dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS} {
							r, _ := l.any(from, newQuery("a.wild.test", qtype))
							if (qtype == dns.TypeA) != (r.Rcode == dns.RcodeSuccess && len(r.Answer) == 1) {
								t.Fatalf("%s, TTL %s, %s first: %s gets %v", what, ttl, dns.TypeToString[first], dns.TypeToString[qtype], r)
							}
						}
					}
					l.pass(time.Second)
					l.settle()
				}
				if n := l.upstreamAsked(); ttl == "5" && n != 60/5+60/20+60/20 {
					t.Errorf("%s, %s first: the upstream was asked %d times", what, dns.TypeToString[first], n)
				}
			}
		}
	}
}

// TestNXDOMAINBehindACNAMEIsOfOneType: the name itself exists.
func TestNXDOMAINBehindACNAMEIsOfOneType(t *testing.T) {
	l := newCacheLab(t, map[string][]string{
		"a.wild.test A":   {"NXDOMAIN", "a.wild.test. 60 IN CNAME gone.test.", soa + "20"},
		"a.wild.test TXT": {`a.wild.test. 60 IN TXT "x"`},
	})
	for range 2 {
		wantCode(t, dns.RcodeNameError, l.reply("10.1.0.2", newQuery("a.wild.test", dns.TypeA)))
		l.gives("10.1.0.2", "a.wild.test", dns.TypeTXT, `a.wild.test. 60 TXT "x"`)
	}
	diff.Equal(t, 2, l.upstreamAsked(), "questions to the upstream")
}

// TestCacheKeys: a query with other flags is a miss.
func TestCacheKeys(t *testing.T) {
	forms := map[string]func(*dns.Msg){
		"plain": func(*dns.Msg) {},
		"no RD": func(m *dns.Msg) { m.RecursionDesired = false },
		"CD":    func(m *dns.Msg) { m.CheckingDisabled = true },
		"AD":    func(m *dns.Msg) { m.AuthenticatedData = true },
		"DO":    func(m *dns.Msg) { m.SetEdns0(1232, true) },
		"CD+DO": func(m *dns.Msg) { m.CheckingDisabled = true; m.SetEdns0(1232, true) },
		"type":  func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeAAAA },
		"label": func(m *dns.Msg) { m.Question[0].Name = `a\.wild.test.` },
	}
	l := newCacheLab(t, map[string][]string{"a.wild.test A": {"a.wild.test. 60 IN A 192.0.2.1"}, "a.wild.test AAAA": {"a.wild.test. 60 IN AAAA 2001:db8::1"},
		`a\.wild.test A`: {`a\.wild.test. 60 IN A 192.0.2.2`}})
	for what, form := range forms {
		m := newQuery("a.wild.test", dns.TypeA)
		form(m)
		for i := range 3 {
			l.any("10.1.0.2", m)
			diff.Equal(t, 1-min(i, 1), l.upstreamAsked(), what, i, "questions to the upstream")
		}
	}
	for what, form := range map[string]func(*dns.Msg){
		"EDNS":     func(m *dns.Msg) { m.SetEdns0(1232, false) },
		"spelling": func(m *dns.Msg) { m.Question[0].Name = "A.wIld.Test." },
		"escapes":  func(m *dns.Msg) { m.Question[0].Name = `\097.\119ild.test.` },
		"cookie": func(m *dns.Msg) {
			m.SetEdns0(1232, false)
			m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "00112233445566778899aabbccddeeff"}}
		},
	} {
		m := newQuery("a.wild.test", dns.TypeA)
		form(m)
		if r, _ := l.any("10.1.0.2", m); l.upstreamAsked() != 0 || len(r.Answer) != 1 || r.Question[0].Name != parsed(t, packed(t, m)).Question[0].Name {
			t.Errorf("%s: not what is kept, or %v", what, r.Question)
		}
	}
}

func TestClassesAndOptionsAreNeverCached(t *testing.T) {
	for what, form := range map[string]func(*dns.Msg){
		"chaos": func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS },
		"any":   func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassANY },
		"NSID": func(m *dns.Msg) {
			m.SetEdns0(1232, false)
			m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_NSID{Code: dns.EDNS0NSID}}
		},
		"subnet": func(m *dns.Msg) {
			m.SetEdns0(1232, false)
			m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_SUBNET{Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: 24, Address: mustAddr("192.0.2.0").AsSlice()}}
		},
		"unknown": func(m *dns.Msg) {
			m.SetEdns0(1232, false)
			m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_LOCAL{Code: 65001, Data: []byte{1}}}
		},
	} {
		l := newCacheLab(t, map[string][]string{"a.wild.test A": {"a.wild.test. 60 IN A 192.0.2.1"}})
		l.any("10.1.0.2", newQuery("a.wild.test", dns.TypeA))
		m := newQuery("a.wild.test", dns.TypeA)
		form(m)
		for range 2 {
			if _, hit := l.any("10.1.0.2", m); hit {
				t.Errorf("%s: given again", what)
			}
		}
		diff.Equal(t, 3, l.upstreamAsked(), what, "questions to the upstream")
		if n, _ := l.answers().cache.Usage(); n != 1 {
			t.Errorf("%s: %d answers are kept", what, n)
		}
	}
}

// TestClientSpecificAnswerIsNotCached, even if the query had no such option.
func TestClientSpecificAnswerIsNotCached(t *testing.T) {
	for _, tt := range []struct {
		option dns.EDNS0
		kept   int
	}{
		{&dns.EDNS0_SUBNET{Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: 24, Address: mustAddr("192.0.2.0").AsSlice()}, 0},
		{&dns.EDNS0_LOCAL{Code: 65001, Data: []byte{1}}, 0},
		{&dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeOther}, 1},
		{&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0011223344556677"}, 1},
	} {
		l := newCacheLab(t, map[string][]string{"a.wild.test A": {"a.wild.test. 60 IN A 192.0.2.1"}})
		l.use(l.config, edited{l.up, func(_ wire.Query, m *dns.Msg) { m.SetEdns0(1232, false).IsEdns0().Option = []dns.EDNS0{tt.option} }})
		l.any("10.1.0.2", newQuery("a.wild.test", dns.TypeA))
		if n, _ := l.answers().cache.Usage(); n != tt.kept {
			t.Errorf("with %T %d answers are kept, want %d", tt.option, n, tt.kept)
		}
	}
}

func TestFailuresAreNotCached(t *testing.T) {
	for _, says := range []string{"SERVFAIL", "REFUSED", "error"} {
		l := newCacheLab(t, map[string][]string{"a.wild.test A": {says}})
		for range 3 {
			if r, _ := l.any("10.1.0.2", newQuery("a.wild.test", dns.TypeA)); len(r.Answer) > 0 || r.Rcode == dns.RcodeSuccess {
				t.Errorf("%v", r)
			}
		}
		diff.Equal(t, 3, l.upstreamAsked(), says, "questions to the upstream")
	}
}

// TestReloadEmptiesTheCacheOnlyIfAnswersCouldDiffer, and cached answers are decided
// again.
func TestReloadEmptiesTheCacheOnlyIfAnswersCouldDiffer(t *testing.T) {
	for _, tt := range []struct {
		name, lines string
		kept        bool
	}{
		{"nothing", "cache", true},
		{"follow", "cache\nfollow off", true},
		{"search", "cache\nsearch lab.test", true},
		{"guard", "cache\nrebind allow wild.test 192.0.2.0/24", true},
		{"cache", "cache 30m", false},
		{"denial", "cache {\nnegative_ttl 1s\n}", false},
		{"ttl", "cache\nttl 5s 1h", false},
		{"size", "cache {\nsize 1MiB\n}", false},
		{"no cache", "", false},
	} {
		l := newCacheLab(t, map[string][]string{"a.wild.test A": {"a.wild.test. 60 IN A 192.0.2.1"}})
		q := newQuery("a.wild.test", dns.TypeA)
		for range 3 {
			l.any("10.1.0.2", q)
		}
		l.upstreamAsked()
		l.reconfigure(tt.lines)
		if _, hit := l.any("10.1.0.2", q); hit {
			t.Errorf("%s: what was decided before is given again", tt.name)
		}
		diff.Equal(t, tt.kept, l.upstreamAsked() == 0, tt.name, "kept")
	}
}

// TestReplyHasTheQuerysOpcode, whatever the upstream's is.
func TestReplyHasTheQuerysOpcode(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"a.wild.test A": {"a.wild.test. 60 IN A 192.0.2.1"}})
	l.use(l.config, edited{l.up, func(_ wire.Query, m *dns.Msg) { m.Opcode = dns.OpcodeNotify }})
	for _, from := range []string{"10.1.0.6", "10.1.0.6", "10.1.0.6", "10.1.0.2"} {
		if r, _ := l.any(from, newQuery("a.wild.test", dns.TypeA)); r.Opcode != dns.OpcodeQuery {
			t.Errorf("%s: opcode %d", from, r.Opcode)
		}
	}
}
