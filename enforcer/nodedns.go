package enforcer

import "net/netip"

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
