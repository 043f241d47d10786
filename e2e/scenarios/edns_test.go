package scenarios

import (
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestUpstreamThatDropsEDNS: the pods' resolver is behind a firewall that drops queries with EDNS.
func TestUpstreamThatDropsEDNS(t *testing.T) {
	t.Parallel()
	s := upstreamsStage(t, "edns.test {\n    forward . 192.0.2.180\n}\n")
	s.upstream("192.0.2.180", lab.Behaviour{UDP: func(q *lab.Query) {
		if q.IsEdns0() == nil {
			_ = q.Reply(honest(q.Msg))
		}
	}})
	s.allowTest()
	for _, name := range []string{"n1-1.edns.test", "n1-2.edns.test", "n1-3.edns.test"} {
		r, took, err := s.patient("a", name)
		fatal.If(t, err)
		if err := s.right(r, []netip.Addr{addressOf(name)}); err != nil || took > clientLimit {
			t.Errorf("%s after %v: %v", name, took, err)
		}
	}
	s.until("queries are asked without EDNS at once", func(i int) bool { return s.immediate("n2-" + string(rune('0'+i%10)) + ".edns.test") })
}

// cookieClient drops replies as c-ares does: with another client's cookie, and without a server's
// once it had one. It never repeats the server's cookie.
type cookieClient struct {
	*client
	had bool
}

const clientCookie = "0011223344556677"

// asks asks once and returns the reply, nil for one that the client drops.
func (c *cookieClient) asks(name string) *dns.Msg {
	c.t.Helper()
	m := new(dns.Msg).SetQuestion(name, dns.TypeA)
	m.SetEdns0(1232, false)
	m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: clientCookie}}
	conn := &dns.Conn{Conn: c.c, UDPSize: 1232}
	_ = c.c.SetDeadline(time.Now().Add(lab.Limit))
	fatal.If(c.t, conn.WriteMsg(m))
	for {
		r, err := conn.ReadMsg()
		fatal.If(c.t, err)
		if r.Id != m.Id {
			continue
		}
		gave := false
		if opt := r.IsEdns0(); opt != nil {
			for _, o := range opt.Option {
				cookie, ok := o.(*dns.EDNS0_COOKIE)
				gave = gave || ok && strings.HasPrefix(cookie.Cookie, clientCookie) && len(cookie.Cookie) > len(clientCookie)
			}
		}
		if c.had = c.had || gave; c.had && !gave {
			return nil
		}
		return r
	}
}

// TestCookies: a client with DNS cookies of the resolver accepts the agent's replies, and the
// resolver's again; and so does one whose resolver gives no cookies.
func TestCookies(t *testing.T) {
	t.Parallel()
	for what, gives := range map[string]bool{"cookies": true, "no cookies": false} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
				s := newStageOf(t, kind)
				s.zone.add(`
					www.example.org. 60 IN A 198.51.100.1
					other.example.org. 60 IN A 198.51.100.2`)
				s.outside.SetAnswer(func(q *dns.Msg) *dns.Msg {
					r := s.zone.answer(q)
					if opt := q.IsEdns0(); opt != nil && gives {
						r.SetEdns0(1232, false)
						for _, o := range opt.Option {
							if cookie, ok := o.(*dns.EDNS0_COOKIE); ok {
								r.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: cookie.Cookie[:16] + "8899aabbccddeeff"}}
							}
						}
					}
					return r
				})
				s.start(map[string]string{"a.yaml": s.Pod("a").Manifest("shop", "a", map[string]string{"app": "client"})})
				old := &cookieClient{client: s.client("a", lab.Resolver4)}
				accepts := func(who *cookieClient, when string, other int) {
					t.Helper()
					for range 3 {
						for name, rcode := range map[string]int{"www.example.org.": dns.RcodeSuccess, "other.example.org.": other} {
							if r := who.asks(name); r == nil || r.Rcode != rcode {
								t.Errorf("%s, %s: %v", when, name, r)
							}
						}
					}
				}
				accepts(old, "the resolver replies", dns.RcodeSuccess)
				s.apply(map[string]string{"policy.yaml": policy("edges", refuseOthers)})
				old.becomes("the agent replies", dns.RcodeRefused)
				young := &cookieClient{client: s.client("a", lab.Resolver4)}
				accepts(old, "the agent replies", dns.RcodeRefused)
				accepts(young, "the agent replies to another client", dns.RcodeRefused)
				fatal.If(t, s.agent.Stop(syscall.SIGTERM))
				old.becomes("the resolver replies again", dns.RcodeSuccess)
				accepts(old, "the resolver replies again", dns.RcodeSuccess)
				accepts(young, "the resolver replies to another client", dns.RcodeSuccess)
			})
		})
	}
}
