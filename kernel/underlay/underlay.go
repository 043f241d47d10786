package underlay

import (
	"context"
	"net/netip"
)

// Peer is the far end of a tunnel: the node's packets inside the tunnel go there.
type Peer struct {
	Addr netip.Addr
	// Protocol is the IP protocol around the packets, Port its destination port, 0 for
	// protocols without ports.
	Protocol uint8
	Port     uint16
	// Source is where the kernel has the peer, such as "forwarding database of vxlan0".
	Source string
}

// Unknown is a tunnel whose peers the kernel does not list: a program chooses them packet by
// packet.
type Unknown struct {
	Device, Kind string
	// Protocol and Port are as in Peer; 0 where they are unknown too.
	Protocol uint8
	Port     uint16
}

// Tunnels are the tunnels of the node.
type Tunnels struct {
	Peers   []Peer
	Unknown []Unknown
}

// NextHop is a router that a route of the node leads through.
type NextHop struct {
	Addr netip.Addr
	// Device is the interface of the route, "" if the kernel does not tell.
	Device string
}

// Sessions are the sessions of BGP (TCP port 179).
type Sessions struct {
	// Peers are the other ends of established sessions.
	Peers []netip.Addr
	// Listens: a socket waits for sessions.
	Listens bool
}

// Interface is the view of the node's underlay. Lists are sorted and without doubles. All
// methods may be called from several goroutines.
type Interface interface {
	// Tunnels returns the tunnels of the node and their peers.
	Tunnels() (Tunnels, error)
	// NextHops returns the next hops of all routing tables.
	NextHops() ([]NextHop, error)
	// Sessions returns the sessions of BGP.
	Sessions() (Sessions, error)
	// Connections returns the remote ends of the established TCP connections of the network
	// namespace's own sockets, without loopback. They are not sorted.
	Connections() ([]netip.AddrPort, error)
	// Watch sends a token after tunnels or routes changed, until ctx ends; changes while a
	// token waits are one token. Endpoints of WireGuard, states of IPsec and sessions send no
	// token. After an error, which lost receives, it goes on.
	Watch(ctx context.Context, lost func(error)) (<-chan struct{}, error)
}
