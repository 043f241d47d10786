package proxy

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/counters"
	"github.com/namegate/namegate/proxy/follow"
	"github.com/namegate/namegate/proxy/limit"
	"github.com/namegate/namegate/proxy/listener"
	"github.com/namegate/namegate/proxy/rebind"
	"github.com/namegate/namegate/proxy/selftest"
	"github.com/namegate/namegate/proxy/upstream"
	"github.com/namegate/namegate/proxy/warm"
)

// DecisionLog takes each decision about a selected pod's question. It must not block; *audit.Log
// is one.
type DecisionLog interface {
	Write(audit.Record)
	// Prepare prepares for Repeat, with which the decision is taken when its reply is given again
	// from the cache. nil: it is not.
	Prepare(*audit.Record) *audit.Prepared
	Repeat(p *audit.Prepared, at time.Time, from netip.Addr, latency time.Duration)
}

// Options are the parameters of a Server.
type Options struct {
	// Config is required; Configure replaces it.
	Config *corefile.Config
	// Granter is required.
	Granter Granter
	// Keep is told the names in use whose answers lack addresses, see grants.Table.Keep; nil:
	// RenewNames is not called.
	Keep warm.Keep
	// Dialled returns the resolver that pods dial to ask a local address; nil: that is the
	// address itself.
	Dialled func(local netip.Addr) netip.Addr
	// HostResolver returns the resolver of the host to which a local address serves the node's own
	// queries, none for other addresses; nil: none does. guarded: the kernel lets no other queries come.
	// It is called when Listen opens the address, and for each query there.
	HostResolver func(local netip.Addr) (resolver netip.Addr, guarded bool)
	// Unanswered is called after a query to a resolver of the host ended without an answer while
	// others for the same question waited: they may be its own, in a loop. It must not block. nil: it
	// is not called.
	Unanswered func(resolver netip.Addr)
	// Log is nil for no log.
	Log DecisionLog
	// Now is the clock of deadlines and of the log; nil is time.Now.
	Now func() time.Time
	// Logger is for the proxy's own faults; nil is slog.Default().
	Logger *slog.Logger
}

// Server answers DNS queries. Its methods may be called from any goroutine.
type Server struct {
	*warm.Ups
	*warm.InUse

	granter  Granter
	log      DecisionLog
	now      func() time.Time
	logger   *slog.Logger
	snapshot atomic.Pointer[policy.Snapshot]
	setup    atomic.Pointer[setup]
	version  atomic.Uint64 // goes up after each change of snapshot or setup
	stats    counters.Counters
	clients  limit.Clients
	started  time.Time
	source   func(netip.Addr) netip.Addr // plainSource; tests have no pods' interfaces
	faultAt  func(step string)           // nil but in tests, where it panics at a step
	after    func(time.Duration, func()) (stop func() bool)
	timeouts grantTimeouts
	listener *listener.Server
	calls    calls
	followed follow.Table
	zones    limit.Zones
	dialled  dialled
	parked   parked
	probes   selftest.Probes
	// hostResolver and unanswered are of Options.
	hostResolver func(netip.Addr) (netip.Addr, bool)
	unanswered   func(netip.Addr)
	forwards     *upstream.Pool

	mu      sync.Mutex       // guards the following fields, and writes of setup
	start   *corefile.Config // the first
	cluster Cluster
	wall    wallClock
	host    Host
}

// setup is what queries need of the configuration; a query uses one throughout.
type setup struct {
	config    *corefile.Config
	zones     []*zone              // of the configuration, the longest names first
	hosts     map[netip.Addr]*zone // by the resolver of the host
	answers   []*answers           // of all zones, each once
	guard     *rebind.Guard
	hostGuard *rebind.Guard
	nodes     map[netip.Addr]bool
	park      []netip.Prefix
}

// New returns a server that listens nowhere and knows no pod yet.
func New(o Options) (*Server, error) {
	switch {
	case o.Config == nil || len(o.Config.Zones) == 0:
		return nil, errors.New("make the proxy: the configuration has no forward")
	case o.Granter == nil:
		return nil, errors.New("make the proxy: there is no granter")
	}
	s := &Server{granter: o.Granter, log: o.Log, now: o.Now, logger: cmp.Or(o.Logger, slog.Default()),
		parked: parked{bySource: map[netip.Addr]map[*parkedQuery]bool{}}}
	if s.dialled.of = o.Dialled; o.Dialled == nil {
		s.dialled.of = func(local netip.Addr) netip.Addr { return local }
	}
	if s.now == nil {
		s.now = time.Now
	}
	s.hostResolver, s.unanswered = o.HostResolver, o.Unanswered
	s.Ups, s.InUse = warm.NewUps(s.errands()), warm.NewInUse(s.errands(), o.Keep)
	s.calls = calls{s: s, all: map[callKey]*call{}}
	s.started, s.source = s.now(), plainSource
	s.after = func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }
	s.listener = listener.New(listener.Options{Counters: &s.stats.Counters, Protect: s.protect, Step: s.step,
		Handler: func(local netip.Addr) listener.Handler { return s.newHandler(local) }})
	s.forwards = upstream.New(upstream.Options{Fault: s.fault, Step: s.step})
	s.Configure(o.Config)
	return s, nil
}

// Listen makes the server serve exactly these addresses, see listener.Server.Listen.
func (s *Server) Listen(addrs []netip.AddrPort) error { return s.listener.Listen(addrs) }

// Addrs returns the addresses that are served, sorted.
func (s *Server) Addrs() []netip.AddrPort { return s.listener.Addrs() }

// ExpectProbe makes the server wait for a query of the self-test, see
// selftest.Probes.Expect. The query is not answered and counts nowhere.
func (s *Server) ExpectProbe() (name string, arrived <-chan struct{}, done func()) {
	return s.probes.Expect()
}

// Publish makes the snapshot decide all queries from now on. A query in flight ends by
// the snapshot with which it began; a parked query is handled by this one if it knows the
// source.
func (s *Server) Publish(snap *policy.Snapshot) {
	old := s.snapshot.Swap(snap)
	if snap.SameButPeers(old) { // prepared replies stay valid: peers decide about resolvers alone
		return
	}
	s.version.Add(1)
	s.clients.Sweep(func(a netip.Addr) bool {
		_, pod := snap.Pod(a)
		return pod
	})
	s.followed.Sweep(snap)
	s.zones.Sweep(func(p policy.PodRef) bool { return snap.ViewOf(p) != nil })
	if gone := removedViews(old, snap); len(gone) > 0 {
		for _, a := range s.setup.Load().answers {
			a.cache.DropReplies(gone)
		}
	}
	s.resume()
}

// Stats returns the totals so far.
func (s *Server) Stats() counters.Stats {
	all := s.stats.Snapshot(s.forwards.Counters())
	all.InFlight, all.Connections = s.clients.InFlight(), s.clients.Connections()
	for _, a := range s.setup.Load().answers {
		entries, bytes := a.cache.Usage()
		all.CacheEntries += int64(entries)
		all.CacheBytes += bytes
	}
	return all
}

// Upstreams returns how many upstreams of each zone answer.
func (s *Server) Upstreams() []upstream.Status { return s.forwards.Status() }

// Close stops listening, lets the queries in flight end, and closes the
// sockets. If ctx ends first the sockets are closed at once and its error is
// returned. A closed server cannot listen again.
func (s *Server) Close(ctx context.Context) error {
	s.Ups.Stop()
	s.InUse.Stop()
	s.listener.Close(ctx)
	s.forwards.Close()
	return ctx.Err()
}
