package proxy

import (
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/policytest"
	"github.com/namegate/namegate/testkit/upstreamtest"
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
	rcodeScript = upstreamtest.Rcode
)

// zoneOf is a zone that asks each upstream once, and waits for its answer: a machine that
// stands still for a moment does not change which upstreams are asked.
func zoneOf(ups ...*scripted) corefile.Zone {
	z := upstreamtest.Zone(ups...)
	z.MaxFails, z.Timeout, z.Deadline = 0, time.Minute, time.Minute
	return z
}

// live makes the lab ask real sockets.
func (l *lab) live(zones ...corefile.Zone) {
	c := *l.s.setup.Load().config
	c.Zones = zones
	l.s.Configure(&c)
}

func askFor(t testing.TB, qname string) wire.Query {
	return wire.Query{Question: wire.Question{Name: policytest.Name(qname), Type: dns.TypeA, Class: dns.ClassINET}, Flags: wire.RD}
}
