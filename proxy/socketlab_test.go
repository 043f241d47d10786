package proxy

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/cache"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/counters"
	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
	"github.com/namegate/namegate/testkit/upstreamtest"
)

// The names that the lab's pods may query over UDP: everything under example.org by
// different port sets and bounds.
const socketPolicies = `
metadata: {name: web, namespace: shop}
spec:
  podSelector: {matchLabels: {app: web}}
  egress: [{matches: [{pattern: "*.example.org"}], ports: [{port: 443}]}, {matches: [{pattern: "**.example.org"}], ports: [{port: 53, protocol: UDP}]}]
---
metadata: {name: quiet, namespace: shop}
spec:
  podSelector: {matchLabels: {app: quiet}}
  egress: [{matches: [{pattern: "*.example.org"}]}]
  ttl: {minSeconds: 30, maxSeconds: 40, graceSeconds: 60}
---
metadata: {name: quiet-too, namespace: shop}
spec:
  podSelector: {matchLabels: {app: quiet}}
  egress: [{matches: [{pattern: "**.org"}], ports: [{protocol: TCP, port: 80}]}, {matches: [{pattern: "*.example.org"}]}]
  ttl: {minSeconds: 1, maxSeconds: 20, graceSeconds: 1}
---
metadata: {name: strict, namespace: shop}
spec:
  podSelector: {matchLabels: {app: strict}}
  egress: [{matches: [{pattern: "a*.example.org"}]}]
  ttl: {minSeconds: 1, maxSeconds: 9, graceSeconds: 1}
  dns: {unmatched: NXDomain}
---
metadata: {name: watched, namespace: shop}
spec:
  podSelector: {matchLabels: {app: watched}}
  egress: [{matches: [{pattern: "*.example.org"}]}]
  enforcement: Audit
---
metadata: {name: both-enforced, namespace: shop}
spec:
  podSelector: {matchLabels: {app: both}}
  egress: [{matches: [{pattern: "*.example.org"}], ports: [{protocol: TCP, port: 80}]}]
  ttl: {minSeconds: 10, maxSeconds: 100, graceSeconds: 5}
---
metadata: {name: both-audit, namespace: shop}
spec:
  podSelector: {matchLabels: {app: both}}
  egress: [{matches: [{pattern: "**"}]}]
  enforcement: Audit
`

var socketCluster = Cluster{Nodes: addrsOf("192.0.2.250"), Services: addrsOf("192.0.2.99")}

var errKernelBusy = errors.New("the kernel is busy")

// teller is a Granter and an AsyncGranter whose behaviour a test chooses. It knows the
// acknowledged grants.
type teller struct {
	cache.CoverageChecker
	// then, if set, is called by GrantThen in place of an immediate result.
	then atomic.Pointer[func(grants []policy.Grant, then GrantCallback)]
	// fails, if not nil, says whether the kernel refuses.
	fails func(grants []policy.Grant) error

	thens atomic.Int64 // calls of GrantThen
	mu    sync.Mutex
	all   []policy.Grant
	open  map[opening]bool
}

func (g *teller) acknowledge(grants []policy.Grant) error {
	if g.fails != nil {
		if err := g.fails(grants); err != nil {
			return err
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == nil {
		g.open = map[opening]bool{}
	}
	for _, of := range grants {
		of.Addrs, of.By = slices.Clone(of.Addrs), slices.Clone(of.By)
		g.all = append(g.all, of)
		for _, a := range of.Addrs {
			g.open[opening{of.Pod, of.Name, "", "", a}] = true
		}
	}
	return nil
}

func (g *teller) Share() int { return math.MaxInt }

func (g *teller) GrantThen(grants []policy.Grant, then GrantCallback) {
	g.thens.Add(1)
	if f := g.then.Load(); f != nil {
		(*f)(grants, then)
		return
	}
	then.Granted(g.acknowledge(grants), false)
}

// tells chooses how GrantThen tells what became of grants.
func (g *teller) tells(f func(grants []policy.Grant, then GrantCallback)) { g.then.Store(&f) }

// of returns the grants for a name, a line a grant.
func (g *teller) of(n fqdn.Name) (out []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, of := range g.all {
		if of.Name == n {
			out = append(out, fmt.Sprintf("%s %v %s %v +%v %v", of.Pod.Name, of.Addrs, of.Ports, of.By, of.Deadline.Sub(noon), of.View != nil))
		}
	}
	return out
}

// of returns the records of a name.
func (r *recorder) of(n fqdn.Name) (out []audit.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rec := range r.recs {
		if rec.Name == n {
			out = append(out, rec)
		}
	}
	return out
}

// socketLab is a lab whose sockets take the socket to real upstreams.
type socketLab struct {
	*lab
	granter *teller
	log     *recorder
}

// newSocketLab has a clock that runs, unless still.
func newSocketLab(t testing.TB, still bool) *socketLab {
	l := &socketLab{newLab(t, nil), new(teller), new(recorder)}
	l.granter.CoverageChecker = l.lab.granter
	l.s.granter, l.s.log = l.granter, l.log
	l.s.logger = slog.New(slog.DiscardHandler)
	if !still {
		l.s.timeouts.running = false
		l.s.now = time.Now
		l.s.started = time.Now()
	}
	l.s.Publish(compiled(t, socketPolicies, labPods))
	l.s.SetCluster(socketCluster)
	return l
}

// asks makes the lab ask these upstreams by a configuration, whose zone edit may
// change.
func (l *socketLab) asks(c *corefile.Config, edit func(*corefile.Zone), ups ...*scripted) {
	z := zoneOf(ups...)
	z.Cache = c.Zones[0].Cache
	if edit != nil {
		edit(&z)
	}
	c.Zones = []corefile.Zone{z}
	l.s.Configure(c)
}

// settled waits until nothing is under way and returns the counters.
func (l *socketLab) settled() counters.Stats {
	l.t.Helper()
	fatal.Await(l.t, "queries are not over", func() bool { return l.s.Stats().InFlight == 0 })
	return l.s.Stats()
}

// lowerCase is a message in words, without the spelling of its names and without
// its id.
func lowerCase(m *dns.Msg) string {
	m = m.Copy()
	m.Id = 0
	return strings.ToLower(m.String())
}

// one is the script of an upstream that gives every question these addresses.
func one(ips ...string) script {
	return func(q *dns.Msg, _ bool) [][]byte {
		var rrs []string
		for _, ip := range ips {
			rrs = append(rrs, q.Question[0].Name+" 60 IN A "+ip)
		}
		return [][]byte{says(q, nil, rrs...)}
	}
}

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
