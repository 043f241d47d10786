package proxy

import (
	"context"
	"io"
	"math"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/listener"
	"github.com/namegate/namegate/proxy/mmsg"
	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/upstreamtest"
)

// nothing is a Granter that acknowledges and forgets.
type nothing struct{ always }

func (nothing) Share() int { return math.MaxInt }

func (nothing) GrantThen(_ []policy.Grant, then GrantCallback) { then.Granted(nil, false) }

// BenchmarkHit is a question that is kept, from the packet to the reply in the
// queue, with the decision, a live grant and the log.
func BenchmarkHit(b *testing.B) {
	l := newCacheLab(b, map[string][]string{"www.example.org A": {"www.example.org. 600 IN A 192.0.2.1", "www.example.org. 600 IN A 192.0.2.2"}}, "cache")
	log := audit.To(io.Discard, audit.Options{Node: "node-1"})
	defer log.Close(context.Background())
	l.s.log, l.s.granter = log, always{l.s.granter}
	m := newQuery("www.example.org", dns.TypeA)
	for range 3 {
		l.any("10.1.0.2", m)
	}
	h, replies := &handler{s: l.s, local: endpoint}, mmsg.NewReader(noSocket{})
	p := listener.NewPacket(replies, packed(b, m), netip.AddrPortFrom(mustAddr("10.1.0.2"), 5353))
	hits, n := l.s.stats.CacheHits.Load(), uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		replies.Flush()
		l.pass(time.Microsecond)
		h.take(&p, l.now())
		n++
	}
	diff.MustEqual(b, n, l.s.stats.CacheHits.Load()-hits, "hits")
}

// BenchmarkForwardedInPlace is from socket to socket over UDP, by an upstream in
// another process, with the log on: its allocations are the proxy's. With a cache each query
// is for another name, whose answer is kept.
func BenchmarkForwardedInPlace(b *testing.B) {
	b.Run("without a cache", func(b *testing.B) { forwardedInPlace(b, nil) })
	b.Run("with a cache", func(b *testing.B) { forwardedInPlace(b, &corefile.Cache{MaxTTL: time.Hour}) })
}

func forwardedInPlace(b *testing.B, kept *corefile.Cache) {
	l := newSocketLab(b, false)
	log := audit.To(io.Discard, audit.Options{Node: "node-1"})
	defer func() { _ = log.Close(context.Background()) }()
	l.s.granter, l.s.log = nothing{}, log
	c := configWith(b)
	c.Zones = []corefile.Zone{{To: []netip.AddrPort{upstreamtest.Process(b)}, Timeout: time.Second, Deadline: 4 * time.Second, MaxFails: 2, Cache: kept}}
	l.s.Configure(c)
	conn, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 2)}, net.UDPAddrFromAddrPort(l.listen()))
	fatal.If(b, err)
	defer conn.Close()
	const digits = 8
	query, buf := packed(b, newQuery("00000000.example.org", dns.TypeA)), make([]byte, 512)
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		for at, n := wire.HeaderBytes+digits, i; kept != nil && n > 0; at, n = at-1, n/10 {
			query[at] = byte('0' + n%10)
		}
		if _, err := conn.Write(query); err != nil {
			b.Fatal(err)
		}
		if _, err := conn.Read(buf); err != nil {
			b.Fatal(err)
		}
	}
	if s := l.s.Stats(); s.Failed != 0 || s.Allowed == 0 || s.CacheHits != 0 {
		b.Fatalf("%+v", s)
	}
}

// BenchmarkUpstreamProcess is the upstream of the benchmarks.
func BenchmarkUpstreamProcess(b *testing.B) { upstreamtest.RunProcess(b) }
