package proxy

import (
	"context"
	"io"
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/listener"
	"github.com/namegate/namegate/proxy/mmsg"
	"github.com/namegate/namegate/testkit/diff"
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
	diff.MustEqual(b, n, l.s.stats.CacheHits.Load()-hits, "hits")
}
