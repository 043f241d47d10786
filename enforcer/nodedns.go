package enforcer

import (
	"context"
	"net/netip"

	"github.com/namegate/namegate/enforcer/ruleset/layout"
)

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

// HostResolvers returns the resolvers of the host for which Start found that the node's own queries are
// led to an agent: they passed its test for loops.
func (e *Enforcer) HostResolvers(ctx context.Context) ([]netip.Addr, error) {
	serving, err := e.tablesInForce().NodeServing(ctx)
	out := make([]netip.Addr, 0, len(serving))
	for r := range serving {
		out = append(out, r)
	}
	return out, err
}

// Unled returns the node's own queries of the last ten minutes that could not be led to the agent:
// their sockets are bound to a device, or are in a VRF.
func (e *Enforcer) Unled(ctx context.Context) ([]layout.Unled, error) {
	return e.tablesInForce().Unled(ctx)
}

// HoldUnconfirmed has the rules of the node that wait for confirmation count for another
// layout.UnconfirmedTimeout.
func (e *Enforcer) HoldUnconfirmed(ctx context.Context) error {
	return e.tablesInForce().HoldUnconfirmed(ctx)
}
