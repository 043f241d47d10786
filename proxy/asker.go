package proxy

import (
	"net/netip"
	"slices"

	"github.com/namegate/namegate/policy"
)

// asker is who sent a query, as its source address tells.
type asker struct {
	addr  netip.Addr // unmapped
	known bool       // a pod or the node; nobody else is answered
	node  bool       // the node itself
	self  bool       // from the very address that was asked: the self-query
	young bool       // nobody yet, and may be a pod soon: its query is held
	view  *policy.View
	snap  *policy.Snapshot // by which this was decided
	// version is the server's version before snap was read: snap, and a setup that is
	// read later, are at least as new.
	version uint64
}

// identify tells who is at the source address of a packet that came to the
// local one. A selected pod is always taken for that, whatever else its address is.
func (s *Server) identify(from, local netip.Addr) asker {
	return s.recognize(s.source(from), local)
}

// recognize is identify for an address without what a socket adds.
func (s *Server) recognize(from, local netip.Addr) asker {
	a := asker{addr: from, version: s.version.Load()}
	snap, setup := s.snapshot.Load(), s.setup.Load()
	a.snap = snap
	if a.view = snap.View(a.addr); a.view != nil {
		a.known = true
		return a
	}
	a.self = a.addr == local.Unmap()
	if a.self || a.addr.IsLoopback() || setup.nodes[a.addr] {
		a.known, a.node = true, true
		return a
	}
	_, a.known = snap.Pod(a.addr)
	// Before the first snapshot nobody is a stranger: the queries of the agent before,
	// which was killed, may still come here.
	a.young = !a.known && (snap == nil || slices.ContainsFunc(setup.hold, func(p netip.Prefix) bool { return p.Contains(a.addr) }))
	return a
}

// plainSource is the address of a packet's source without what a socket adds.
func plainSource(from netip.Addr) netip.Addr { return from.Unmap().WithZone("") }
