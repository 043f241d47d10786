package proxy

import (
	"net/netip"
	"slices"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/limit"
)

// identity is the client that sent a query, as its source address tells.
type identity struct {
	addr         netip.Addr    // unmapped
	local        netip.Addr    // that was asked, unmapped; none for the agent's own queries
	known        bool          // a pod or the node; no other source is answered
	node         bool          // the node itself
	self         bool          // from the very address that was asked: the self-query
	unidentified bool          // no pod yet, and may be one soon: its query is parked
	limits       *limit.Client // none before they count
	view         *policy.View
	snap         *policy.Snapshot // by which this was decided
	host         netip.Addr       // the resolver of the host that the node itself asks; none for every other query
	// version is the server's version before snap was read: snap, and a setup that is
	// read later, are at least as new.
	version uint64
}

// identify returns the client at the source address of a packet that came to the local
// address. A selected pod is always recognized, whatever else its address is.
func (s *Server) identify(from, local netip.Addr) identity {
	return s.recognize(s.source(from), local)
}

// recognize is identify for an address without a socket's mapping and zone.
func (s *Server) recognize(from, local netip.Addr) identity {
	c := identity{addr: from, local: local.Unmap(), version: s.version.Load()}
	snap, setup := s.snapshot.Load(), s.setup.Load()
	c.snap = snap
	if c.view = snap.View(c.addr); c.view != nil && c.view.Node != nil {
		c.view = nil // the addresses stand for the node in grants alone
	}
	if c.view != nil {
		c.known = true
		return c
	}
	c.self = c.addr == c.local
	if c.self || c.addr.IsLoopback() || setup.nodes[c.addr] {
		c.known, c.node = true, true
		return c
	}
	_, c.known = snap.Pod(c.addr)
	// Before the first snapshot no source is unknown: the queries of the agent before,
	// which was killed, may still come here.
	c.unidentified = !c.known && (snap == nil || slices.ContainsFunc(setup.park, func(p netip.Prefix) bool { return p.Contains(c.addr) }))
	return c
}

// plainSource is the address of a packet's source without a socket's mapping and zone.
func plainSource(from netip.Addr) netip.Addr { return from.Unmap().WithZone("") }

// identifyHost returns the client of a packet that came to an address that serves the node's own
// queries to a resolver: the node, whatever address it sends from. The kernel lets no other packet
// come there, once it guards the address; a packet from a pod's address is not answered all the same.
func (s *Server) identifyHost(from, local, resolver netip.Addr) identity {
	c := identity{addr: s.source(from), version: s.version.Load(), host: resolver}
	c.snap = s.snapshot.Load()
	if c.self = c.addr == local.Unmap(); c.self {
		c.known, c.node = true, true
		return c
	}
	_, guarded := s.hostResolver(local)
	if _, pod := c.snap.Pod(c.addr); pod || c.snap == nil || !guarded {
		return c
	}
	c.known, c.node, c.view, c.addr = true, true, c.snap.Node(), policy.NodeSubjects[0]
	return c
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
