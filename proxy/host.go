package proxy

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/cache"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/rebind"
	"github.com/namegate/namegate/proxy/upstream"
	"github.com/namegate/namegate/proxy/wire"
)

// The node's own queries are forwarded to the resolver that they were sent to, and to no other.
// Each resolver of the host has a cachingResolver of its own: an answer of one is not given to a
// query to another. Queries for the node that no program sent go to all resolvers of the host, in
// their order.

// Host is how the node's own queries are served.
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

// hosts are the resolvers of the host; the lock of the server.
type hosts struct {
	is  Host
	all map[netip.Addr]*hostResolver // replaced and never changed
}

// hostResolver is a resolver of the host, or all of them, by one configuration.
type hostResolver struct {
	zone corefile.Zone
	to   []netip.AddrPort
	*cachingResolver
}

// SetHost replaces the resolvers of the host, for queries on serving addresses that Options.HostResolver
// knows. It comes before such an address is served.
func (s *Server) SetHost(h Host) {
	s.forwards.SetMark(h.Mark)
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Equal(s.hosts.is.Resolvers, h.Resolvers) && slices.Equal(s.hosts.is.Former, h.Former) {
		return
	}
	s.hosts.is = Host{slices.Clone(h.Resolvers), slices.Clone(h.Former), h.Mark}
	setup := s.setup.Load()
	s.hosts.all = s.resolveHost(setup.config, true)
	s.route(setup.config)
	s.routeHost()
	s.store(setup.config, setup.resolver)
}

// resolveHost makes the resolvers of the host for a configuration. keep: those of the same
// addresses stay, since the configuration is the same. sameAnswers: their caches stay, at least. The
// caller holds mu.
func (s *Server) resolveHost(c *corefile.Config, keep bool) map[netip.Addr]*hostResolver {
	old, out := s.hosts.all, map[netip.Addr]*hostResolver{}
	add := func(r netip.Addr, to ...netip.AddrPort) {
		if last := old[r]; keep && last != nil && slices.Equal(last.to, to) {
			out[r] = last
			return
		}
		h := &hostResolver{zone: c.Zones[len(c.Zones)-1], to: to}
		h.zone.Name, h.zone.To, h.zone.Services, h.zone.Before = "", to, nil, nil
		// Programs choose another resolver themselves.
		h.zone.Policy, h.zone.MaxFails, h.zone.ForceTCP = corefile.Sequential, 0, false
		h.cachingResolver = &cachingResolver{s: s, config: c, host: r}
		if last := old[r]; last != nil && sameAnswers(last.config, c) {
			h.cache, h.warmed = last.cache, last.warmed
		} else {
			h.cache, h.warmed = cache.New(c.CacheEntries, c.CacheBytes), cache.New(warmEntries, warmBytes)
		}
		h.begin()
		out[r] = h
	}
	var every []netip.AddrPort
	for _, r := range s.hosts.is.Resolvers {
		every = append(every, netip.AddrPortFrom(r, dnsPort))
	}
	for _, r := range slices.Concat(s.hosts.is.Resolvers, s.hosts.is.Former) {
		if out[r] == nil {
			add(r, netip.AddrPortFrom(r, dnsPort))
		}
	}
	if len(every) > 0 {
		add(everyResolver, every...)
	}
	return out
}

// routeHost gives the resolvers of the host the zones that route made; the caller holds mu.
func (s *Server) routeHost() {
	for r, h := range s.hosts.all {
		if h.zones == nil {
			h.zones = []zone{{&h.zone, s.forwards.ZoneFor(r)}}
		}
	}
}

// forwards returns the forwards to the resolvers of the host.
func (h *hosts) forwards() (out []upstream.Forward) {
	for _, r := range slices.SortedFunc(maps.Keys(h.all), netip.Addr.Compare) {
		out = append(out, upstream.Forward{Zone: &h.all[r].zone, For: r, First: h.all[r].to})
	}
	return out
}

// resolverFor returns what answers the client's queries.
func (s *setup) resolverFor(c *identity) *cachingResolver {
	if !c.host.IsValid() {
		return s.resolver
	}
	if h := s.hosts[c.host]; h != nil {
		return h.cachingResolver
	}
	return s.noResolver
}

// resolvers returns what answers queries of any client.
func (s *setup) resolvers() []*cachingResolver {
	all := []*cachingResolver{s.resolver}
	for _, h := range s.hosts {
		all = append(all, h.cachingResolver)
	}
	return all
}

// identifyHost returns the client of a packet that came to an address that serves the node's own
// queries to a resolver: the node, whatever address it sends from. The kernel lets no other packet
// come there; a packet from a pod's address is not answered all the same.
func (s *Server) identifyHost(from, local, resolver netip.Addr) identity {
	c := identity{addr: s.source(from), version: s.version.Load(), host: resolver}
	c.snap = s.snapshot.Load()
	if c.self = c.addr == local.Unmap(); c.self {
		c.known, c.node = true, true
		return c
	}
	if _, pod := c.snap.Pod(c.addr); pod || c.snap == nil {
		return c
	}
	c.known, c.node, c.view, c.addr = true, true, c.snap.Node(), policy.NodeSubjects[0]
	return c
}

// AskResolver sends a resolver of the host a query for the TXT records of a name until it is
// answered or ctx ends: once over UDP, from a socket with the mark of the last SetHost. The
// answer counts nowhere.
func (s *Server) AskResolver(ctx context.Context, resolver netip.Addr, name string) error {
	n, err := fqdn.ParseName(name)
	if err != nil {
		return err
	}
	return s.forwards.Ask(ctx, netip.AddrPortFrom(resolver, dnsPort), wire.Query{Question: wire.Question{Name: n, Type: dns.TypeTXT, Class: dns.ClassINET}, Flags: wire.RD})
}

// resolver returns what answers the query.
func (q *query) resolver() *cachingResolver { return q.setup.resolverFor(&q.client) }

// guardFor returns the guard against rebinding that holds for the client.
func (s *setup) guardFor(c *identity) *rebind.Guard {
	if c.host.IsValid() {
		return s.hostGuard
	}
	return s.guard
}

// noResolver makes what answers without a zone; the caller holds mu.
func (s *Server) noResolver(c *corefile.Config) *cachingResolver {
	r := &cachingResolver{s: s, config: c, cache: cache.New(0, 0), warmed: cache.New(0, 0)}
	r.begin()
	return r
}

// newHandler makes the handler of an address.
func (s *Server) newHandler(local netip.Addr) *handler {
	h := &handler{s: s, local: local}
	if s.hostResolver != nil {
		h.host, _ = s.hostResolver(local)
	}
	return h
}

// identify returns the client of a packet from an address.
func (h *handler) identify(from netip.Addr) identity {
	if h.host.IsValid() {
		return h.s.identifyHost(from, h.local, h.host)
	}
	return h.s.identify(from, h.local)
}
