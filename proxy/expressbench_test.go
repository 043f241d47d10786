package proxy

import (
	"context"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/upstream/upstreamtest"
)

// prompt is a kernel's side that has done it already.
type prompt struct{}

func (prompt) Grant(context.Context, []policy.Grant) error { return nil }

func (prompt) GrantThen(_ []policy.Grant, then Then) { then.Granted(nil, false) }

// BenchmarkShortWay is from socket to socket on the short way, by an upstream in
// another process, with the log on: its allocations are the proxy's.
func BenchmarkShortWay(b *testing.B) {
	l := newExpressLab(b, false)
	log := audit.To(io.Discard, audit.Options{Node: "node-1"})
	defer func() { _ = log.Close(context.Background()) }()
	l.s.granter, l.s.opener, l.s.log = prompt{}, prompt{}, log
	c := configWith(b)
	c.Zones = []corefile.Zone{{To: []netip.AddrPort{upstreamtest.Process(b)}, Timeout: time.Second, Deadline: 4 * time.Second, MaxFails: 2}}
	l.s.Configure(c)
	conn, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 2)}, net.UDPAddrFromAddrPort(l.listen()))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	query, buf := packed(b, newQuery("www.example.org", dns.TypeA)), make([]byte, 512)
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := conn.Write(query); err != nil {
			b.Fatal(err)
		}
		if _, err := conn.Read(buf); err != nil {
			b.Fatal(err)
		}
	}
	if s := l.s.Stats(); s.Failed != 0 || s.Allowed == 0 {
		b.Fatalf("%+v", s)
	}
}

// BenchmarkUpstreamProcess is the upstream of the benchmarks.
func BenchmarkUpstreamProcess(b *testing.B) { upstreamtest.RunProcess(b) }
