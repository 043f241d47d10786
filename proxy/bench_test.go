package proxy

import (
	"context"
	"io"
	"math"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/answer"
	"github.com/namegate/namegate/proxy/cache"
	"github.com/namegate/namegate/proxy/listener"
	"github.com/namegate/namegate/proxy/mmsg"
	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/fatal"
)

type discard struct{ n atomic.Int64 }

func (d *discard) Write(audit.Record) { d.n.Add(1) }

// same is a resolver with one answer in hand.
type same struct{ found }

func (s same) resolve(wire.Query) (found, error) { return s.found, nil }

func benchLab(b *testing.B) (*lab, []byte, identity) {
	l := newLab(b, labTable)
	l.s.log = &discard{}
	got, err := l.up.resolve(askFor(b, "www.example.org"))
	fatal.If(b, err)
	l.use(l.s.setup.Load().config, same{got})
	packet, err := newQuery("www.example.org", dns.TypeA).Pack()
	fatal.If(b, err)
	l.s.granter = nothing{}
	return l, packet, l.s.identify(netip.MustParseAddr("10.1.0.2"), netip.Addr{})
}

func BenchmarkIdentify(b *testing.B) {
	l, _, _ := benchLab(b)
	a := netip.MustParseAddr("10.1.0.2")
	for b.Loop() {
		if l.s.identify(a, netip.Addr{}).view == nil {
			b.Fatal("not selected")
		}
	}
}

// BenchmarkForwarded is a query over loopback sockets with an upstream behind
// them: the client's and the upstream's work is in the figure.
func BenchmarkForwarded(b *testing.B) {
	l, _, _ := benchLab(b)
	l.live(zoneOf(startScript(b, honest("192.0.2.1"))))
	l.s.Publish(compiled(b, labPolicies, labPods))
	at := l.listen()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		c := client(b, "udp", "127.0.0.2", at)
		for pb.Next() {
			m := newQuery("x"+itoa(int(dns.Id()))+".wild.test", dns.TypeA)
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			if err := c.WriteMsg(m); err != nil {
				b.Error(err)
				return
			}
			if _, err := c.ReadMsg(); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// nothing is a Granter that acknowledges and forgets.
type nothing struct{}

func (nothing) Share() int { return math.MaxInt }

func (nothing) GrantThen(_ []policy.Grant, then GrantCallback) { then.Granted(nil, false) }

// BenchmarkHit is a question that is kept, from the packet to the reply in the
// queue, with the decision, a live grant and the log.
func BenchmarkHit(b *testing.B) {
	l := newCacheLab(b, map[string][]string{"www.example.org A": {"www.example.org. 600 IN A 192.0.2.1", "www.example.org. 600 IN A 192.0.2.2"}}, "cache")
	log := audit.To(io.Discard, audit.Options{Node: "node-1"})
	defer log.Close(context.Background())
	l.s.log, l.s.coverage = log, always{}
	m := newQuery("www.example.org", dns.TypeA)
	for range 3 {
		l.any("10.1.0.2", m)
	}
	h, replies := &handler{s: l.s, local: endpoint}, new(mmsg.Reader)
	p := listener.NewPacket(replies, packed(b, m), netip.AddrPortFrom(mustAddr("10.1.0.2"), 5353))
	hits, n := l.s.stats.CacheHits.Load(), uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		replies.Discard()
		l.pass(time.Microsecond)
		h.take(&p, l.now())
		n++
	}
	if got := l.s.stats.CacheHits.Load() - hits; got != n {
		b.Fatalf("%d hits of %d", got, n)
	}
}

// BenchmarkHitsOverSnapshots asks for 1,000 kept names in turn, while no snapshot comes
// and while each tenth of a second another is published, with other pods on other nodes.
// Its processor time is to be compared, which other programs disturb less.
func BenchmarkHitsOverSnapshots(b *testing.B) {
	for _, every := range []time.Duration{0, 100 * time.Millisecond} {
		b.Run(every.String(), func(b *testing.B) {
			table, packets := map[string][]string{}, [][]byte(nil)
			for i := range 1000 {
				n := "n" + itoa(i) + ".wild.test"
				table[n+" A"] = []string{n + ". 600 IN A 192.0.2.1"}
				packets = append(packets, packed(b, newQuery(n, dns.TypeA)))
			}
			l := newCacheLab(b, table, "cache")
			log := audit.To(io.Discard, audit.Options{Node: "node-1"})
			defer log.Close(context.Background())
			l.s.log, l.s.coverage = log, always{}
			world := newNode(b)
			snaps := []*policy.Snapshot{world.snapshot()}
			for i := range 20 {
				world.pods = append(world.pods, elsewhere("far"+itoa(i), "10.1.7."+itoa(i+1)))
				snaps = append(snaps, world.snapshot())
			}
			l.s.Publish(snaps[0])
			h, replies := &handler{s: l.s, local: endpoint}, new(mmsg.Reader)
			from, last, published := netip.AddrPortFrom(mustAddr("10.1.0.2"), 5353), time.Now(), 0
			var taken []listener.Packet
			for _, p := range packets {
				taken = append(taken, listener.NewPacket(replies, p, from))
				for range 2 {
					l.decidedAgain("10.1.0.2", p, false)
				}
			}
			hits, n, began := l.s.stats.CacheHits.Load(), uint64(0), used(b)
			for b.Loop() {
				if n%1000 == 0 && every > 0 && time.Since(last) > every {
					last, published = time.Now(), published+1
					l.s.Publish(snaps[published%len(snaps)])
				}
				replies.Discard()
				l.pass(time.Microsecond)
				h.take(&taken[n%1000], l.now())
				n++
			}
			b.ReportMetric(float64(used(b)-began)/float64(n), "cpu-ns/op")
			if got := l.s.stats.CacheHits.Load() - hits; got != n {
				b.Fatalf("%d hits of %d", got, n)
			}
		})
	}
}

// used is the processor time of the process.
func used(b *testing.B) time.Duration {
	var u unix.Rusage
	fatal.If(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// answerPacket is an upstream's reply with a CNAME and two addresses.
func answerPacket(b *testing.B) []byte {
	return says(newQuery("www.example.org", dns.TypeA), func(m *dns.Msg) { m.Compress = true; m.SetEdns0(1232, false) },
		"www.example.org. 300 IN CNAME edge.cdn.test.", "edge.cdn.test. 120 IN A 192.0.2.1", "edge.cdn.test. 120 IN A 192.0.2.2")
}

// BenchmarkCheck is the check of an answer, including the parsing of the message.
func BenchmarkCheck(b *testing.B) {
	packet, q := answerPacket(b), askFor(b, "www.example.org").Question
	b.ReportAllocs()
	for b.Loop() {
		m := new(dns.Msg)
		if m.Unpack(packet) != nil || len(answer.Check(q, m, 64).Addrs) != 2 {
			b.Fatal("no addresses")
		}
	}
}

// BenchmarkPlainReply is the same over UDP.
func BenchmarkPlainReply(b *testing.B) {
	packet, q := answerPacket(b), askFor(b, "www.example.org").Question
	var r wire.AnswerView
	b.ReportAllocs()
	for b.Loop() {
		if !r.Parse(packet, q, 64, nil) || len(r.Addrs) != 2 {
			b.Fatal("not plain")
		}
	}
}

// BenchmarkCache keeps and finds answers, of which a full cache lets others go.
func BenchmarkCache(b *testing.B) {
	packet := answerPacket(b)
	c := cache.New(10_000, 32<<20)
	asks := make([]wire.Query, 20_000)
	for i := range asks {
		asks[i] = askFor(b, "n"+itoa(i)+".wild.test")
	}
	b.Run("put", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			c.Put(cache.NewEntry(asks[i%len(asks)], packet, netip.AddrPort{}, 0, time.Hour))
		}
	})
	b.Run("get", func(b *testing.B) {
		c.Put(cache.NewEntry(asks[7], packet, netip.AddrPort{}, 0, time.Hour))
		b.ReportAllocs()
		for b.Loop() {
			if c.Get(asks[7]) == nil {
				b.Fatal("not kept")
			}
		}
	})
}
