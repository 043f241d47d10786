package proxy

import (
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/upstream/upstreamtest"
	"github.com/namegate/namegate/proxy/wire"
)

// Upstreams on the loopback.
type (
	script   = upstreamtest.Script
	scripted = upstreamtest.Server
)

var (
	startScript = upstreamtest.Start
	says        = upstreamtest.Says
	honest      = upstreamtest.Honest
	silent      = upstreamtest.Silent
	rcodeScript = upstreamtest.Rcode
)

// zoneOf is a root zone of these upstreams in their order, with short times.
func zoneOf(ups ...*scripted) corefile.Zone {
	z := corefile.Zone{Policy: corefile.Sequential, MaxFails: 2, Timeout: time.Second, Deadline: 20 * time.Second}
	for _, u := range ups {
		z.To = append(z.To, u.Addr)
	}
	return z
}

// live makes the lab ask real sockets.
func (l *lab) live(zones ...corefile.Zone) {
	c := *l.s.setup.Load().config
	c.Zones = zones
	l.s.Configure(&c)
}

func askFor(t testing.TB, qname string) wire.Query {
	return wire.Query{Question: wire.Question{Name: name(t, qname), Type: dns.TypeA, Class: dns.ClassINET}, Flags: wire.RD}
}

// await waits until a condition holds.
func await(t testing.TB, otherwise string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(otherwise)
		}
	}
}
