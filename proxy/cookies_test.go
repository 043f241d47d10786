package proxy

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// cookieServer is an upstream that gives cookies, or fails to answer the query for one.
type cookieServer struct {
	resolver
	gives, fails bool
	asked        int
}

func (c *cookieServer) resolve(a wire.Query) (found, error) {
	cookie := wire.Cookie(a.Pack(1))
	if cookie == nil {
		return c.resolver.resolve(a)
	}
	if c.asked++; c.fails {
		return found{}, errNoZone
	}
	m := new(dns.Msg)
	if err := m.Unpack(a.Pack(1)); err != nil {
		return found{}, err
	}
	m.Response = true
	if c.gives {
		m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: hex.EncodeToString(cookie) + "0102030405060708"}}
	}
	return found{msg: m}, nil
}

const mine, theirs = "0011223344556677", "8899aabbccddeeff"

// cookieOf is the cookie in a message, "" for none.
func cookieOf(m *dns.Msg) string {
	if opt := m.IsEdns0(); opt != nil {
		for _, o := range opt.Option {
			if c, ok := o.(*dns.EDNS0_COOKIE); ok {
				return c.Cookie
			}
		}
	}
	return ""
}

// accepts tells whether a client with cookies of the server takes the reply (RFC 7873 §5.3).
func accepts(r *dns.Msg) bool {
	got := cookieOf(r)
	return len(got) >= 4*8 && len(got) <= 2*40 && strings.HasPrefix(got, mine)
}

// TestCookies: a client that had cookies of the resolver gets them with each kind of reply, whether it
// repeats the server's, as RFC 7873 says, or its own alone, as c-ares does. Where the resolver gives
// none a client without one is given none: it would drop the resolver's replies later.
func TestCookies(t *testing.T) {
	table := map[string][]string{"www.example.org A": {"www.example.org. 60 IN A 192.0.2.1"}, "a.wild.test A": {"a.wild.test. 60 IN A 192.0.2.1"},
		"a.wild.test TXT": {"a.wild.test. 60 IN TXT x"}, "gone.wild.test A": {"NXDOMAIN", soa + "20"}, "dead.wild.test A": {"error"}}
	for i := range 200 {
		table["many.wild.test A"] = append(table["many.wild.test A"], fmt.Sprintf("many.wild.test. 60 IN A 192.0.2.%d", i))
	}
	for _, gives := range []bool{true, false} {
		for _, cookie := range []string{mine, mine + theirs} {
			l := newCacheLab(t, table)
			up := &cookieServer{resolver: l.up, gives: gives}
			l.use(l.config, up)
			for _, from := range []string{"10.1.0.2", "10.1.0.3", "10.1.0.6"} {
				for ask, tcp := range map[string]bool{"www.example.org A": false, "a.wild.test A": true, "a.wild.test TXT": false, "gone.wild.test A": false,
					"dead.wild.test A": false, "many.wild.test A": false, "refused.test AXFR": false} {
					name, qtype, _ := strings.Cut(ask, " ")
					for i := range 3 { // the last from the packet cache
						m := newQuery(name, dns.StringToType[qtype])
						m.SetEdns0(1232, false)
						m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: cookie}}
						packet := packed(t, m)
						reply := l.fromPacketCache(from, packet)
						if tcp || reply == nil {
							reply = l.decidedAgain(from, packet, tcp)
						}
						r := parsed(t, reply)
						if want := gives || cookie != mine; accepts(r) != want || cookieOf(r) != "" && !want || len(reply) > 1232 {
							t.Errorf("the resolver gives cookies %t, %s from %s, %d: cookie %q with %q, %d bytes", gives, ask, from, i, cookieOf(r), cookie, len(reply))
						}
					}
				}
			}
			diff.Equal(t, map[bool]int{true: 1}[cookie == mine], up.asked, "questions to the upstream for a cookie")
			if r, _ := l.any("10.1.0.2", newQuery("www.example.org", dns.TypeA)); r.IsEdns0() != nil {
				t.Errorf("a client without EDNS gets %v", r)
			}
		}
	}
}

// TestCookiesOfAnotherResolver: the upstreams are asked again after a while, and soon where they did
// not answer. No query waits for that.
func TestCookiesOfAnotherResolver(t *testing.T) {
	l := newCacheLab(t, map[string][]string{"www.example.org A": {"www.example.org. 60 IN A 192.0.2.1"}})
	up := &cookieServer{resolver: l.up, fails: true}
	l.use(l.config, up)
	ask := func(want bool) {
		t.Helper()
		m := newQuery("www.example.org", dns.TypeA)
		m.SetEdns0(1232, false)
		m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: mine}}
		fatal.Await(t, fmt.Sprintf("replies with a cookie: %t", want), func() bool { r, _ := l.any("10.1.0.2", m); return accepts(r) == want })
	}
	ask(false)
	up.fails, up.gives = false, true
	l.pass(time.Second)
	ask(false)
	l.pass(10 * time.Second)
	ask(true)
	up.gives = false
	l.pass(time.Minute)
	ask(true)
	l.pass(10 * time.Minute)
	ask(false)
}
