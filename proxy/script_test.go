package proxy

import (
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy/policytest"
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
	rcodeScript = upstreamtest.Rcode
	zoneOf      = upstreamtest.Zone
)

// live makes the lab ask real sockets.
func (l *lab) live(zones ...corefile.Zone) {
	c := *l.s.setup.Load().config
	c.Zones = zones
	l.s.Configure(&c)
}

func askFor(t testing.TB, qname string) wire.Query {
	return wire.Query{Question: wire.Question{Name: policytest.Name(qname), Type: dns.TypeA, Class: dns.ClassINET}, Flags: wire.RD}
}
