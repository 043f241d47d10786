package proxy

import (
	"iter"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"github.com/namegate/namegate/policy/fqdn"
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
	next := s.configured(c)
	s.route(next)
	s.store(next)
	return pending
}

// configured makes the zones of a configuration, and of the resolvers of the host by it. What
// another configuration knows of upstreams stays if the answers are the same by this one; the caller
// holds mu.
func (s *Server) configured(c *corefile.Config) *setup {
	old, next := s.setup.Load(), &setup{config: c, zones: make([]*zone, len(c.Zones))}
	own := s.newAnswers(c)
	if old != nil && sameAnswers(old.config, c) {
		own = old.zones[0].answers
	}
	for i := range c.Zones {
		next.zones[i] = &zone{answers: own, config: c, settings: &c.Zones[i]}
	}
	next.hosts = s.hostZones(c)
	return next
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
	old, next := s.cluster, *s.setup.Load()
	s.cluster = c
	same := c.sameResolvers(old)
	if !same {
		s.route(&next)
	}
	same = same && c.sameGuard(old)
	if !same {
		s.store(&next)
	}
	s.mu.Unlock()
	if !same {
		s.resume() // a parked query's source may be one of the node's
	}
}

// store makes the setup, with the cluster of the moment, that of queries from now on; the caller
// holds mu.
func (s *Server) store(next *setup) {
	next.guard = s.cluster.Guard(next.config)
	next.hostGuard, next.park = next.guard.ForNode(), s.cluster.Hold
	next.nodes = make(map[netip.Addr]bool, len(s.cluster.Nodes))
	for _, a := range s.cluster.Nodes {
		next.nodes[a.Unmap()] = true
	}
	s.setup.Store(next)
	s.version.Add(1)
}

// route gives every zone its upstreams as the configuration, the cluster and the host have them
// now; the caller holds mu.
func (s *Server) route(next *setup) {
	zones := slices.Clone(next.zones)
	for _, r := range slices.SortedFunc(maps.Keys(next.hosts), netip.Addr.Compare) {
		zones = append(zones, next.hosts[r])
	}
	all := make([]upstream.Forward, len(zones))
	for i, z := range zones {
		all[i] = upstream.Forward{Zone: z.settings, For: z.host, First: z.settings.To}
		if !z.host.IsValid() {
			all[i].First, all[i].Last = s.cluster.upstreams(z.config, z.settings)
		}
	}
	for i, up := range s.forwards.Configure(all) {
		if zones[i].upstreams == nil {
			zones[i].upstreams = up
		}
	}
}

// root returns the root zone of the client's queries, nil for a resolver of the host that is gone.
func (s *setup) root(c *identity) *zone {
	if c.host.IsValid() {
		return s.hosts[c.host]
	}
	return s.zones[len(s.zones)-1]
}

// zone returns the longest zone of a name that the client asks for, nil if none covers it.
func (s *setup) zone(c *identity, n fqdn.Name) *zone {
	if c.host.IsValid() {
		return s.hosts[c.host]
	}
	for _, z := range s.zones {
		if n.HasSuffix(z.settings.Name) {
			return z
		}
	}
	return nil
}

// answers yields what is known of all upstreams.
func (s *setup) answers() iter.Seq[*answers] {
	return func(yield func(*answers) bool) {
		if !yield(s.zones[0].answers) {
			return
		}
		for _, z := range s.hosts {
			if !yield(z.answers) {
				return
			}
		}
	}
}
