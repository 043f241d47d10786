package failsafes

import (
	"cmp"
	"fmt"

	"github.com/namegate/namegate/kernel/underlay"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/failsafe"
)

// The ports of BFD (RFC 5881, RFC 5883) and of BGP (RFC 4271).
const (
	bfdFirst, bfdLast, bfdMultihop = 3784, 3785, 4784
	bgp                            = 179
)

// underlay adds tunnel peers, next hops and routing sessions.
func (n *needs) underlay(in *Inputs) {
	for _, p := range in.Tunnels.Peers {
		n.kept = append(n.kept, entry(single(p.Addr), tunnelPorts(p.Protocol, p.Port), "tunnel peer", p.Source))
	}
	for _, u := range in.Tunnels.Unknown {
		n.unknownTunnel(u)
	}
	for _, hop := range in.NextHops {
		icmp, source := failsafe.ICMP, "routing tables"
		if hop.Addr.Is6() {
			icmp = failsafe.ICMPv6
		}
		if hop.Device != "" {
			source = "routes through " + hop.Device
		}
		for _, ports := range []policy.PortRange{
			failsafe.AllPorts(icmp),
			{Protocol: policy.UDP, First: bfdFirst, Last: bfdLast},
			failsafe.Port(policy.UDP, bfdMultihop),
		} {
			n.kept = append(n.kept, entry(single(hop.Addr), ports, "next hop", source))
		}
	}
	for _, a := range in.Sessions.Peers {
		n.kept = append(n.kept, entry(single(a), failsafe.Port(policy.TCP, bgp), "BGP session", "TCP sockets of the node"))
	}
	if in.Sessions.Listens && len(in.Sessions.Peers) == 0 {
		n.problem("TCP sockets of the node", policy.TCP, "a program waits for sessions of BGP, and none is established; write `failsafe CIDR:179/tcp` with the peers in the Corefile", bgp)
	}
}

// tunnelPorts returns one port, or a protocol without ports.
func tunnelPorts(protocol uint8, port uint16) policy.PortRange {
	if port == 0 {
		return failsafe.AllPorts(policy.Protocol(protocol))
	}
	return failsafe.Port(policy.Protocol(protocol), port)
}

// unknownTunnel adds the problem of a tunnel whose peers the kernel does not list. Without a
// port, an entry of the Corefile with every protocol settles it.
func (n *needs) unknownTunnel(u underlay.Unknown) {
	source, kind := "tunnel "+u.Device, cmp.Or(u.Kind, "unknown kind")
	if u.Port == 0 {
		protocol := cmp.Or(policy.Protocol(u.Protocol), tunnelProtocol)
		n.problem(source, protocol, fmt.Sprintf("a program chooses the peers of the tunnel (%s) packet by packet; write `failsafe CIDR` with the peers' range in the Corefile", kind))
		return
	}
	n.problem(source, policy.Protocol(u.Protocol), fmt.Sprintf("a program chooses the peers of the tunnel (%s) packet by packet; write `failsafe CIDR:%d/udp` with the peers' range in the Corefile", kind, u.Port), u.Port)
}

// tunnelProtocol stands for the protocol of a tunnel of which none is known. It is reserved
// (IANA), so only an entry with every protocol settles its problem.
const tunnelProtocol policy.Protocol = 255
