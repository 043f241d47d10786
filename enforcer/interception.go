package enforcer

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/namegate/namegate/enforcer/handover"
	"github.com/namegate/namegate/enforcer/intercept"
)

// dnsPort is the only port of the endpoint and of resolvers.
const dnsPort = 53

func (e *Enforcer) newInterception() *intercept.Interception {
	return intercept.New(intercept.Config{
		Links: e.k.Links, Tables: e.tablesInForce(), Resolvers: e.cfg.Resolvers, Endpoint: e.cfg.Endpoint,
		Beaten: e.beaten, Now: e.now, Log: e.log,
		Taken: func() []netip.Addr { return slices.Collect(maps.Keys(e.predecessor.Addrs())) },
	})
}

// Interception returns the interception of pods' DNS queries. Its network comes into force
// by Refresh.
func (e *Enforcer) Interception() *intercept.Interception { return e.intercept }

// startInterception looks for a predecessor, and takes serving addresses.
func (e *Enforcer) startInterception() ([]netip.Addr, error) {
	own, err := e.k.Links.Addrs()
	if err != nil {
		return nil, err
	}
	own = slices.DeleteFunc(own, func(a netip.Addr) bool { return !intercept.InRange(a) })
	e.nodeServed = e.recovered.NodeGivenBack
	dialled := maps.Clone(e.nodeServed)
	maps.Copy(dialled, e.recovered.GivenBack)
	e.predecessor.Find(own, dialled)
	e.relaysBefore = slices.DeleteFunc(slices.Clone(e.recovered.Relays), func(at netip.AddrPort) bool {
		return !slices.Contains(own, at.Addr()) || !handover.InUse(at)
	})
	return e.intercept.Start(slices.DeleteFunc(own, func(a netip.Addr) bool {
		return e.predecessor.Serves(a) || slices.ContainsFunc(e.relaysBefore, func(at netip.AddrPort) bool { return at.Addr() == a })
	}))
}

// Refresh brings the network of the last SetNetwork into force, and returns the addresses
// that have to be served from now on. Before the first Commit it writes nothing: that
// Commit brings the whole into force at once, since an agent before this one may be
// intercepting all.
func (e *Enforcer) Refresh(ctx context.Context) ([]netip.Addr, error) {
	e.apply.Lock()
	defer e.apply.Unlock()
	serving := e.intercept.Activate()
	if e.snapshot == nil {
		return serving, nil
	}
	return serving, e.applyTables(ctx, e.inForce(), e.snapshot)
}

// beaten reports a heartbeat. The first one of several that fail has the kernel compared,
// the others not: that takes time that the proxy may want for.
func (e *Enforcer) beaten(began time.Time, err error, changed bool) {
	if err == nil {
		e.drift.report(fromHeartbeat, began, nil)
		return
	}
	e.drift.report(fromHeartbeat, began, err, "heartbeat")
	if changed {
		e.suspect()
	}
}

// Resolves tells whether DNS is served at an address: an intercepted resolver's, an
// endpoint's, or a serving address of an agent; before the first Commit at none.
func (e *Enforcer) Resolves(at netip.AddrPort) bool {
	dialled, serving := e.intercept.Lookup(at.Addr())
	return e.committed.Load() && at.Port() == dnsPort && (dialled || serving || e.predecessor.Serves(at.Addr()))
}

// SocketMark is the packet mark of the agent's own sockets: their packets are not intercepted. Packets
// have both bits for no other reason where they leave a socket.
func (e *Enforcer) SocketMark() uint32 { return e.cfg.Mark | e.cfg.Candidate }

// predecessors returns the serving addresses of the predecessor for pods, and for the node's own
// queries, to the addresses that were dialled.
func (e *Enforcer) predecessors() (pods, node map[netip.Addr]netip.Addr) {
	pods, node = map[netip.Addr]netip.Addr{}, map[netip.Addr]netip.Addr{}
	for serving, dialled := range e.predecessor.Addrs() {
		if _, ofNode := e.nodeServed[serving]; ofNode {
			node[serving] = dialled
		} else {
			pods[serving] = dialled
		}
	}
	return pods, node
}
