package proxy

import (
	"context"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/audit"
)

type discard struct{ n atomic.Int64 }

func (d *discard) Write(audit.Record) { d.n.Add(1) }

// same is a resolver with one answer in hand.
type same struct{ found }

func (s same) resolve(ask) (found, error) { return s.found, nil }

func benchLab(b *testing.B) (*lab, []byte, asker) {
	l := newLab(b, labTable)
	l.s.log = &discard{}
	got, err := l.up.resolve(askFor(b, "www.example.org"))
	if err != nil {
		b.Fatal(err)
	}
	l.use(l.s.setup.Load().config, same{got})
	packet, err := newQuery("www.example.org", dns.TypeA).Pack()
	if err != nil {
		b.Fatal(err)
	}
	l.s.granter = nothing{}
	return l, packet, l.s.identify(netip.MustParseAddr("10.1.0.2"), netip.Addr{})
}

// BenchmarkAllowed is packet to packet, the upstream's answer in hand.
func BenchmarkAllowed(b *testing.B) {
	l, packet, who := benchLab(b)
	b.ReportAllocs()
	for b.Loop() {
		if l.s.handle(packet, who, false) == nil {
			b.Fatal("no reply")
		}
	}
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
	l.s.Publish(compile(b, labPolicies, labPods))
	at := l.listen()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		c := client(b, "udp", "127.0.0.2", at)
		for pb.Next() {
			m := newQuery("x"+itoa(int(dns.Id()))+".wild.test", dns.TypeA)
			_ = c.SetDeadline(time.Now().Add(5 * time.Second))
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

func (nothing) Grant(context.Context, []policy.Grant) error { return nil }
