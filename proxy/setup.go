package proxy

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/rebind"
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
	next.answers = []*answers{next.zones[0].answers}
	for _, z := range next.hosts {
		next.answers = append(next.answers, z.answers)
	}
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

// zone returns the longest zone of a name that the client asks for, of "" the root zone; nil if none
// covers it, and for a resolver of the host that is gone.
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

// guardFor returns the guard against rebinding that holds for the node, or for pods.
func (s *setup) guardFor(node bool) *rebind.Guard {
	if node {
		return s.hostGuard
	}
	return s.guard
}

// Host is how the node's own queries are served: each is forwarded to the resolver that it was sent to,
// and to no other. Queries for the node that no program sent go to all resolvers of the host, in their
// order.
type Host struct {
	// Resolvers are the resolvers of the host, in the order in which the node's names are asked
	// for where no program asks.
	Resolvers []netip.Addr
	// Former may have queries in flight. No further ones are expected.
	Former []netip.Addr
	// Mark is the packet mark of the proxy's sockets to upstreams, 0 for none.
	Mark uint32
}

// everyResolver stands for all resolvers of the host. No resolver has this address.
var everyResolver = netip.IPv6Unspecified()

// SetHost replaces the resolvers of the host, for queries on serving addresses that Options.HostResolver
// knows. It comes before such an address is served.
func (s *Server) SetHost(h Host) {
	s.forwards.SetMark(h.Mark)
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Equal(s.host.Resolvers, h.Resolvers) && slices.Equal(s.host.Former, h.Former) {
		return
	}
	s.host = Host{slices.Clone(h.Resolvers), slices.Clone(h.Former), h.Mark}
	next := *s.setup.Load()
	next.hosts = s.hostZones(next.config)
	s.route(&next)
	s.store(&next)
}

// hostZones makes the zones of the resolvers of the host for a configuration. A zone stays while its
// addresses and the configuration are the same; the caller holds mu.
func (s *Server) hostZones(c *corefile.Config) map[netip.Addr]*zone {
	old, out := map[netip.Addr]*zone{}, map[netip.Addr]*zone{}
	if setup := s.setup.Load(); setup != nil {
		old = setup.hosts
	}
	add := func(r netip.Addr, to ...netip.AddrPort) {
		last := old[r]
		if last != nil && last.config == c && slices.Equal(last.settings.To, to) {
			out[r] = last
			return
		}
		settings := c.Zones[len(c.Zones)-1]
		settings.Name, settings.To, settings.Services, settings.Before = "", to, nil, nil
		// Programs choose another resolver themselves.
		settings.Policy, settings.MaxFails, settings.ForceTCP = corefile.Sequential, 0, false
		out[r] = &zone{config: c, settings: &settings, host: r}
		if last != nil && sameAnswers(last.config, c) && slices.Equal(last.settings.To, to) {
			out[r].answers = last.answers
		} else {
			out[r].answers = s.newAnswers(c)
		}
	}
	var every []netip.AddrPort
	for _, r := range s.host.Resolvers {
		every = append(every, netip.AddrPortFrom(r, dnsPort))
	}
	for _, r := range slices.Concat(s.host.Resolvers, s.host.Former) {
		if out[r] == nil {
			add(r, netip.AddrPortFrom(r, dnsPort))
		}
	}
	if len(every) > 0 {
		add(everyResolver, every...)
	}
	return out
}

// minStep is the smallest change of the clock that counts as set: a smaller one is a
// clock that is being slewed.
const minStep = 2 * time.Second

// wallClock is the difference between the wall clock and the server's own clock, which
// cannot be set and which stands still while the machine is suspended.
type wallClock struct{ ahead time.Duration }

// step returns by how much the clock was set since the last call, 0 for less than
// minStep. start is the server's start.
func (w *wallClock) step(start, now time.Time) time.Duration {
	last := w.ahead
	w.ahead = now.Round(0).Sub(start.Round(0)) - now.Sub(start)
	if step := w.ahead - last; step >= minStep || step <= -minStep {
		return step
	}
	return 0
}

// Retime is to be called about once a second. If the clock was set forward, as after a
// suspended machine resumes, cached answers count as that much older: the names may have
// changed meanwhile. A clock that was set back makes no answer younger.
func (s *Server) Retime() {
	s.mu.Lock()
	defer s.mu.Unlock()
	step := s.wall.step(s.started, s.now())
	if step == 0 {
		return
	}
	s.logger.Info("the clock was set, or the machine was suspended; kept answers are older by what it was set forward", "by", step.Round(time.Millisecond))
	for _, a := range s.setup.Load().answers {
		a.cache.Age(max(step, 0))
		a.warmed.Age(max(step, 0))
	}
}
