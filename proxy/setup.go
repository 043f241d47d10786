package proxy

import (
	"net/netip"
	"reflect"

	"github.com/namegate/namegate/proxy/cache"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/upstream"
)

// Configure replaces the configuration for further queries: upstreams, guard, search
// suffixes, limits and the grant timeout. It returns the directives that differ from the
// configuration of the start and need a restart, in the Corefile's words: Listen applies
// the listening addresses, and the rest is read at the agent's start.
func (s *Server) Configure(c *corefile.Config) (pending []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.start == nil {
		s.start = c
	}
	pending = c.NeedsRestart(s.start)
	s.hosts.all = s.resolveHost(c, false)
	s.route(c)
	s.routeHost()
	zs := make([]zone, len(c.Zones))
	for i := range c.Zones {
		zs[i] = zone{&c.Zones[i], s.forwards.Zone(c.Zones[i].Name)}
	}
	s.store(c, s.resolve(c, zs))
	return pending
}

// resolve puts the cache in front of the zones. Entries of another configuration stay if
// the answers are the same by this one; the caller holds mu.
func (s *Server) resolve(c *corefile.Config, zs []zone) *cachingResolver {
	old := s.setup.Load()
	if old == nil || !sameAnswers(old.config, c) {
		s.cache, s.warmed = cache.New(c.CacheEntries, c.CacheBytes), cache.New(warmEntries, warmBytes)
	}
	r := &cachingResolver{s: s, config: c, zones: zs, cache: s.cache, warmed: s.warmed}
	r.begin()
	return r
}

// sameAnswers tells whether both configurations lead to the same answers, and
// keep them alike.
func sameAnswers(a, b *corefile.Config) bool {
	return reflect.DeepEqual(a.Zones, b.Zones) && a.TTL == b.TTL && a.CacheEntries == b.CacheEntries && a.CacheBytes == b.CacheBytes
}

// SetCluster replaces the proxy's knowledge of the cluster: the addresses that the guard
// protects, the endpoints of Services, and the ranges whose queries are parked. It may be
// called at any time and costs little when nothing changed.
func (s *Server) SetCluster(c Cluster) {
	s.dialled.setCluster(c)
	s.mu.Lock()
	old, setup := s.cluster, s.setup.Load()
	s.cluster = c
	same := c.sameResolvers(old)
	if !same {
		s.route(setup.config)
	}
	same = same && c.sameGuard(old)
	if !same {
		s.store(setup.config, setup.resolver)
	}
	s.mu.Unlock()
	if !same {
		s.resume() // a parked query's source may be one of the node's
	}
}

// store makes the setup of a configuration; the caller holds mu.
func (s *Server) store(c *corefile.Config, r *cachingResolver) {
	guard := s.cluster.Guard(c)
	next := &setup{config: c, guard: guard, hostGuard: guard.ForNode(), resolver: r, hosts: s.hosts.all, noResolver: s.noResolver(c),
		nodes: make(map[netip.Addr]bool, len(s.cluster.Nodes)), park: s.cluster.Hold}
	for _, a := range s.cluster.Nodes {
		next.nodes[a.Unmap()] = true
	}
	s.setup.Store(next)
	s.version.Add(1)
}

// route gives every zone its upstreams as the configuration and the cluster have
// them now; the caller holds mu.
func (s *Server) route(c *corefile.Config) {
	all := make([]upstream.Forward, len(c.Zones))
	for i := range c.Zones {
		all[i].Zone = &c.Zones[i]
		all[i].First, all[i].Last = s.cluster.upstreams(c, all[i].Zone)
	}
	s.forwards.Configure(append(all, s.hosts.forwards()...))
}
