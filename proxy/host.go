package proxy

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/rebind"
	"github.com/namegate/namegate/proxy/upstream"
	"github.com/namegate/namegate/proxy/wire"
)

// The node's own queries are forwarded to the resolver that they were sent to, and to no other.
// Each resolver of the host is a zone with answers of its own. Queries for the node that no program sent go to all resolvers of the host, in
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
		if last != nil && sameAnswers(last.config, c) {
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

// askAgain is after what time AskResolver sends a query again.
const askAgain = 500 * time.Millisecond

// AskResolver sends a resolver of the host a query for the TXT records of a name until it is
// answered or ctx ends: once over UDP, from a socket with the mark of the last SetHost. The
// answer counts nowhere.
func (s *Server) AskResolver(ctx context.Context, resolver netip.Addr, name string) error {
	n, err := fqdn.ParseName(name)
	if err != nil {
		return err
	}
	q := wire.Query{Question: wire.Question{Name: n, Type: dns.TypeTXT, Class: dns.ClassINET}, Flags: wire.RD}
	_, err = upstream.Ask(ctx, s.forwards.Dialer(), netip.AddrPortFrom(resolver, dnsPort), q, askAgain)
	return err
}

// guardFor returns the guard against rebinding that holds for the client.
func (s *setup) guardFor(c *identity) *rebind.Guard {
	if c.host.IsValid() {
		return s.hostGuard
	}
	return s.guard
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
