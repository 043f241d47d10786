package proxy

import (
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

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

// load is what one source address has under way.
type load struct {
	queries     atomic.Int32
	connections atomic.Int32
	pace        pace // of its queries
	sheds       pace // of the replies to those beyond it
}

// loads are the loads of known askers, by address. Strangers share one.
type loads struct {
	mu        sync.RWMutex
	byAddr    map[netip.Addr]*load
	strangers load
}

func (l *loads) of(a asker) *load {
	if !a.known {
		return &l.strangers
	}
	l.mu.RLock()
	ld := l.byAddr[a.addr]
	l.mu.RUnlock()
	if ld != nil {
		return ld
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if ld = l.byAddr[a.addr]; ld == nil {
		if l.byAddr == nil {
			l.byAddr = map[netip.Addr]*load{}
		}
		ld = new(load)
		l.byAddr[a.addr] = ld
	}
	return ld
}

// ofConnection is of, for who has completed a handshake: an address that is held
// has a load of its own, or the node's starting pods would share a stranger's bounds.
func (l *loads) ofConnection(a asker) *load {
	a.known = a.known || a.young
	return l.of(a)
}

// sweep forgets the addresses that are no pod's any more.
func (l *loads) sweep(snap *policy.Snapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for a, ld := range l.byAddr {
		if _, pod := snap.Pod(a); !pod && ld.queries.Load() == 0 && ld.connections.Load() == 0 {
			delete(l.byAddr, a)
		}
	}
}

// place is what an admitted query holds until release.
type place struct {
	*load
	era uint32
}

// admit takes a place for one query of the asker, or says which bound is
// reached. The node's own queries do not count against everyone's bound, so that
// a flood cannot make the agent take itself for dead.
func (s *Server) admit(a asker) (p place, ok bool) {
	limits := s.setup.Load().config.Limits
	ld := s.loads.of(a)
	if int(ld.queries.Add(1)) > limits.QueriesPerPod {
		ld.queries.Add(-1)
		s.stats.ShedPod.Add(1)
		return place{}, false
	}
	if s.stats.inFlight.Add(1) > int64(limits.Queries) && !a.node {
		s.stats.inFlight.Add(-1)
		ld.queries.Add(-1)
		s.stats.ShedAll.Add(1)
		return place{}, false
	}
	return place{ld, s.underWay.begin()}, true
}

// release gives the place back.
func (s *Server) release(p place) {
	p.queries.Add(-1)
	s.stats.inFlight.Add(-1)
	s.underWay.end(p.era)
}
