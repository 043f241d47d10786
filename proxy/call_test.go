package proxy

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// unreadable is a reply whose record is cut short.
func unreadable(q *dns.Msg) []byte {
	p := append(says(q, nil), 0xc0, wire.HeaderBytes, 0)
	p[7] = 1
	return p
}

// crowded has so many clients ask the same at a moment, and returns their replies
// and the time that the slowest took. meanwhile, if not nil, is called when all have
// asked.
func (l *socketLab) crowded(at netip.AddrPort, clients int, meanwhile func()) (replies []*dns.Msg, took time.Duration) {
	l.t.Helper()
	var conns []*dns.Conn
	for i := range clients {
		conns = append(conns, client(l.t, "udp", fmt.Sprintf("127.0.0.%d", 2+i%3), at))
	}
	began := time.Now()
	for _, c := range conns {
		fatal.If(l.t, c.WriteMsg(newQuery("all.example.org", dns.TypeA)))
	}
	if meanwhile != nil {
		meanwhile()
	}
	for _, c := range conns {
		r, err := c.ReadMsg()
		fatal.If(l.t, err)
		replies = append(replies, r)
	}
	return replies, time.Since(began)
}

// gated is a script that waits until the gate is open.
func gated(gate <-chan struct{}, sc script) script {
	return func(q *dns.Msg, tcp bool) [][]byte {
		if q.Question[0].Qtype != dns.TypeNS { // no probe
			<-gate
		}
		return sc(q, tcp)
	}
}

// TestCallsThatFailOver: whatever the result of the first try, every waiter gets the
// final answer.
func TestCallsThatFailOver(t *testing.T) {
	const clients, short = 12, 2 * time.Second
	slow := func(q *dns.Msg, _ bool) [][]byte {
		if q.Question[0].Qtype != dns.TypeNS {
			time.Sleep(short + 100*time.Millisecond)
		}
		return one("192.0.2.1")(q, false)
	}
	for _, tt := range []struct {
		name    string
		first   script
		rcode   int
		answers int
		least   time.Duration
		asked   int64 // how often the first upstream is, for all together
	}{
		{name: "SERVFAIL", first: rcodeScript(dns.RcodeServerFailure), answers: 1, asked: 1},
		{name: "REFUSED", first: rcodeScript(dns.RcodeRefused), answers: 1, asked: 1},
		{name: "FORMERR", first: rcodeScript(dns.RcodeFormatError), answers: 1, asked: 2}, // again without EDNS
		{name: "NXDOMAIN", first: rcodeScript(dns.RcodeNameError), rcode: dns.RcodeNameError, asked: 1},
		{name: "no address", first: rcodeScript(dns.RcodeSuccess), asked: 1},
		{name: "two names", first: func(q *dns.Msg, _ bool) [][]byte {
			return [][]byte{says(q, nil, q.Question[0].Name+" 60 IN A 192.0.2.1", "ads.test. 60 IN A 192.0.2.2")}
		}, answers: 1, asked: 1},
		{name: "cut off", first: func(q *dns.Msg, tcp bool) [][]byte {
			if tcp {
				return one("192.0.2.1")(q, true)
			}
			return [][]byte{says(q, func(r *dns.Msg) { r.Truncated = true })}
		}, answers: 1, asked: 1},
		{name: "noise", first: func(q *dns.Msg, _ bool) [][]byte {
			return [][]byte{unreadable(q)}
		}, answers: 1, least: short, asked: 1},
		{name: "silence", first: func(q *dns.Msg, _ bool) [][]byte { return nil }, answers: 1, least: short, asked: 1},
		{name: "slowness", first: slow, answers: 1, least: short, asked: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := newSocketLab(t, false)
			gate, timeout := make(chan struct{}), time.Minute
			if tt.least > 0 {
				timeout = short
			}
			var asked atomic.Int64
			first, second := startScript(t, gated(gate, func(q *dns.Msg, tcp bool) [][]byte {
				if q.Question[0].Qtype == dns.TypeA && !tcp {
					asked.Add(1)
				}
				return tt.first(q, tcp)
			})), startScript(t, gated(gate, one("192.0.2.1")))
			l.asks(configWith(t), func(z *corefile.Zone) { z.Timeout = timeout }, first, second)
			replies, took := l.crowded(l.listen(), clients, func() {
				fatal.Await(t, "the call", func() bool { return l.s.Stats().Coalesced == clients-1 })
				close(gate)
			})
			for _, r := range replies {
				if r.Rcode != tt.rcode || len(r.Answer) != tt.answers {
					t.Fatalf("%v", r)
				}
			}
			if took < tt.least {
				t.Errorf("it took %v", took)
			}
			s := l.settled()
			// Where a try is short a slow machine has more rounds, in which both upstreams are asked.
			rounds := int64(1)
			if tt.least > 0 {
				rounds = second.UDP.Load()
			}
			if n := asked.Load(); n != tt.asked*rounds || s.Queries != clients || s.Panics != 0 {
				t.Errorf("asked %d times, %+v", n, s)
			}
			diff.Equal(t, 0, len(l.s.calls.all), "calls left")
		})
	}
}

// TestDrainAnswersReceivedQueries: received queries are answered before the socket closes.
func TestDrainAnswersReceivedQueries(t *testing.T) {
	for what, end := range map[string]func(s *Server) error{
		"Listen": func(s *Server) error { return s.Listen(nil) },
		"Close":  func(s *Server) error { return s.Close(context.Background()) },
	} {
		t.Run(what, func(t *testing.T) {
			l := newSocketLab(t, false)
			l.granter.tells(func(grants []policy.Grant, then GrantCallback) {
				time.AfterFunc(20*time.Millisecond, func() { then.Granted(l.granter.acknowledge(grants), false) })
			})
			c := configWith(t)
			c.GrantTimeout = time.Minute // a slow machine loses no query
			l.asks(c, nil, startScript(t, func(q *dns.Msg, tcp bool) [][]byte {
				time.Sleep(50 * time.Millisecond)
				return one("192.0.2.1")(q, tcp)
			}))
			conn := client(t, "udp", "127.0.0.2", l.listen())
			const queries = 200
			for i := range queries {
				fatal.If(t, conn.WriteMsg(newQuery(fmt.Sprintf("n%d.example.org", i), dns.TypeA)))
			}
			// Packets in the socket are read for a moment only.
			fatal.Await(t, "the reading of all", func() bool { return l.s.Stats().Queries == queries })
			fatal.If(t, end(l.s))
			if s := l.settled(); s.Allowed != queries || s.RepliesLost != 0 {
				t.Errorf("%+v", s)
			}
			for i := range queries {
				if r, err := conn.ReadMsg(); err != nil || len(r.Answer) != 1 {
					t.Fatalf("reply %d: %v, %v", i, r, err)
				}
			}
		})
	}
}

// TestChangesUnderLoad: reloads lose no query, and a policy that has ended answers
// none.
func TestChangesUnderLoad(t *testing.T) {
	l := newSocketLab(t, false)
	up := startScript(t, one("192.0.2.1"))
	l.asks(configWith(t), nil, up)
	at := l.listen()
	with, without := l.s.snapshot.Load(), compiled(t, strings.ReplaceAll(socketPolicies, `"a*.example.org"`, `"none.test"`), labPods)
	var over atomic.Bool
	var wg sync.WaitGroup
	for k := range 4 {
		conn := client(t, "udp", fmt.Sprintf("127.0.0.%d", 2+k%2), at)
		wg.Go(func() {
			for i := 0; !over.Load(); i++ {
				if r := exchange(t, conn, newQuery(fmt.Sprintf("n%d-%d.example.org", k, i), dns.TypeA)); len(r.Answer) != 1 {
					t.Errorf("%v", r)
					return
				}
			}
		})
	}
	conn := client(t, "udp", "127.0.0.4", at)
	for i := range 60 {
		l.asks(configWith(t, []string{"", "cache", "follow off"}[i%3]), nil, up)
		l.s.SetCluster(Cluster{Nodes: socketCluster.Nodes, Services: addrsOf(fmt.Sprintf("192.0.2.%d", 100+i))})
		for _, snap := range []*policy.Snapshot{without, with} {
			l.s.Publish(snap)
			r := exchange(t, conn, newQuery(fmt.Sprintf("a%d.example.org", i), dns.TypeA))
			diff.Equal(t, len(r.Answer) == 1, snap == with, "allowed", r)
		}
	}
	over.Store(true)
	wg.Wait()
	if s := l.settled(); s.Failed != 0 || s.RepliesLost != 0 || s.Panics != 0 {
		t.Errorf("%+v", s)
	}
}
