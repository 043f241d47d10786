package proxy

import (
	"context"
	"io"
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/listener"
	"github.com/namegate/namegate/proxy/mmsg"
	"github.com/namegate/namegate/proxy/upstream"
	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/fatal"
)

// BenchmarkForwardedAlone is a query for a name that is not kept, with a fake upstream, granter and
// client: from the identification of the client to the reply, with the log.
func BenchmarkForwardedAlone(b *testing.B) {
	l := newSocketLab(b, false)
	log := audit.To(io.Discard, audit.Options{Node: "node-1"})
	defer func() { _ = log.Close(context.Background()) }()
	l.s.granter, l.s.log = nothing{}, log
	c := configWith(b)
	c.Zones[0].Cache = &corefile.Cache{MaxTTL: time.Hour}
	next := l.s.configured(c)
	next.zones[0].upstreams = fakeUpstream{answerFor(b, "00000000.example.org")}
	l.s.store(next)
	h, room := l.s.newHandler(endpoint), make([]byte, mmsg.PacketBytes)
	packet, from := packed(b, newQuery("00000000.example.org", dns.TypeA)), mustAddr("10.1.0.2")
	b.ReportAllocs()
	began := used(b)
	for i := 0; b.Loop(); i++ {
		for at, n := wire.HeaderBytes+8, i; n > 0; at, n = at-1, n/10 {
			packet[at] = byte('0' + n%10)
		}
		started := l.s.now()
		who, _ := h.meet(from, started.Sub(l.s.started))
		view, _ := wire.ParseQuery(packet)
		if n, _ := l.s.cached(&view, &who, started, room); n > 0 {
			b.Fatal("a hit")
		}
		slot, _ := l.s.admit(&who)
		q := l.s.newQuery(packet, &who, nowhere{}, started)
		q.setView(&view)
		q.slot, q.missed = slot, true
		q.run()
	}
	b.ReportMetric(float64(used(b)-began)/float64(b.N), "cpu-ns/op")
	if s := l.s.Stats(); s.Failed != 0 || s.Allowed != uint64(b.N) || s.Grants != s.Allowed {
		b.Fatalf("%+v", s)
	}
}

// nowhere is a replier without a client.
type nowhere struct{}

func (nowhere) stream() bool       { return false }
func (nowhere) reply([]byte, bool) {}
func (nowhere) done(*query)        {}

// answerFor is an upstream's answer with two addresses.
func answerFor(b *testing.B, name string) []byte {
	return says(newQuery(name, dns.TypeA), func(m *dns.Msg) { m.Compress = true }, name+". 60 IN A 192.0.2.1", name+". 60 IN A 192.0.2.2")
}

// fakeUpstream answers with a packet, for names of one length.
type fakeUpstream struct{ packet []byte }

func (f fakeUpstream) Start(q wire.Query, to upstream.Responder, _ *upstream.Batch) {
	copy(f.packet[wire.HeaderBytes:], q.Name)
	if !to.Packet(f.packet, netip.AddrPort{}) {
		panic("not in place")
	}
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

// used is the processor time of the process.
func used(b *testing.B) time.Duration {
	var u unix.Rusage
	fatal.If(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
