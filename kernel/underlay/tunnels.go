package underlay

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// tunnel is a device that puts packets into packets.
type tunnel struct {
	index      int
	name, kind string
	protocols  []uint8 // around the packets
	port       uint16
	remote     netip.Addr // zero: none, or several elsewhere
	// chosen: a program gives each packet its peer (collect_md, external).
	chosen bool
	up     bool
}

// opaque are the kinds of tunnels whose peers this package cannot read.
var opaque = []string{"amt", "bareudp", "erspan", "gtp", "ip6erspan", "l2tpeth", "ovpn", "pptp"}

// tunnelOf reads the settings of a device; false if it is no tunnel.
func tunnelOf(l netlink.Link) (t tunnel, ok bool) {
	t = tunnel{index: l.Attrs().Index, name: l.Attrs().Name, kind: l.Type(), up: l.Attrs().Flags&net.FlagUp != 0}
	remote := func(ip net.IP) {
		if a, ok := address(ip); ok {
			t.remote = a
		}
	}
	// in is for tunnels of IP in protocol, in UDP if that has a port (foo-over-UDP).
	in := func(port uint16, encapsulation uint16, protocols ...uint8) {
		if t.protocols = protocols; encapsulation != 0 {
			t.protocols, t.port = []uint8{unix.IPPROTO_UDP}, port
		}
	}
	switch l := l.(type) {
	case *netlink.Vxlan:
		t.protocols, t.port, t.chosen = []uint8{unix.IPPROTO_UDP}, uint16(l.Port), l.FlowBased
		remote(l.Group)
	case *netlink.Geneve:
		t.protocols, t.port, t.chosen = []uint8{unix.IPPROTO_UDP}, l.Dport, l.FlowBased
		remote(l.Remote)
	case *netlink.Iptun:
		in(l.EncapDport, l.EncapType, inner(l.Proto, unix.IPPROTO_IPIP)...)
		t.chosen = l.FlowBased
		remote(l.Remote)
	case *netlink.Sittun:
		in(l.EncapDport, l.EncapType, inner(l.Proto, unix.IPPROTO_IPV6)...)
		remote(l.Remote)
	case *netlink.Ip6tnl:
		in(l.EncapDport, l.EncapType, inner(l.Proto, unix.IPPROTO_IPIP, unix.IPPROTO_IPV6)...)
		t.chosen = l.FlowBased
		remote(l.Remote)
	case *netlink.Gretun:
		in(l.EncapDport, l.EncapType, unix.IPPROTO_GRE)
		t.chosen = l.FlowBased
		remote(l.Remote)
	case *netlink.Gretap:
		in(l.EncapDport, l.EncapType, unix.IPPROTO_GRE)
		t.chosen = l.FlowBased
		remote(l.Remote)
	case *netlink.Vti:
		t.protocols = []uint8{unix.IPPROTO_ESP}
		remote(l.Remote)
	case *netlink.Wireguard:
		t.protocols = []uint8{unix.IPPROTO_UDP}
	default:
		t.chosen = slices.Contains(opaque, t.kind)
		return t, t.chosen
	}
	return t, true
}

// inner returns the protocol that a tunnel is set to, or its defaults.
func inner(set uint8, defaults ...uint8) []uint8 {
	if set != 0 {
		return []uint8{set}
	}
	return defaults
}

// Tunnels implements Interface.
func (k *Kernel) Tunnels() (Tunnels, error) {
	links, err := k.links()
	if err != nil {
		return Tunnels{}, err
	}
	var tunnels []tunnel
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
		if t, ok := tunnelOf(l); ok {
			tunnels = append(tunnels, t)
		}
	}
	g := gathered{peers: map[Peer]bool{}, unknown: map[Unknown]bool{}}
	if len(tunnels) > 0 {
		if err := k.gather(&g, tunnels, names); err != nil {
			return Tunnels{}, err
		}
	}
	if err := k.gatherIPsec(&g); err != nil {
		return Tunnels{}, err
	}
	return g.tunnels(), nil
}

// gather reads the peers of the tunnel devices.
func (k *Kernel) gather(g *gathered, tunnels []tunnel, names map[int]string) error {
	database, err := k.forwardingDatabase()
	if err != nil {
		return err
	}
	objects, err := k.nexthopObjects()
	if err != nil {
		return err
	}
	hops, err := k.nextHops(names)
	if err != nil {
		return err
	}
	for _, t := range tunnels {
		g.device(t)
		switch t.kind {
		case "vxlan":
			for _, f := range database {
				if f.device == t.index {
					g.peer(t, f.to, cmp.Or(f.port, t.port), "forwarding database of "+t.name)
				}
			}
			for _, o := range objects {
				if a, ok := address(o.gateway); ok && o.fdb {
					g.peer(t, a, t.port, "nexthop objects of forwarding databases")
				}
			}
		case "wireguard":
			endpoints, err := k.endpoints(t.index)
			if err != nil {
				return err
			}
			for _, e := range endpoints {
				g.peer(t, e.Addr(), e.Port(), "WireGuard "+t.name)
			}
		default:
			// The peers of a device without a remote address are the gateways of its routes.
			for _, hop := range hops {
				if hop.Device == t.name && !t.remote.IsValid() {
					g.peer(t, hop.Addr, t.port, "routes through the tunnel "+t.name)
				}
			}
		}
	}
	return nil
}

// gatherIPsec reads the other ends of IPsec states, and opens the key exchange to them.
func (k *Kernel) gatherIPsec(g *gathered) error {
	if !k.ipsec {
		return nil
	}
	var states []netlink.XfrmState
	err := settled(func() (err error) {
		states, err = k.h.XfrmStateList(netlink.FAMILY_ALL)
		return err
	})
	if err != nil {
		return fmt.Errorf("list IPsec states: %w", err)
	}
	for _, s := range states {
		g.ipsec(s)
	}
	return nil
}

// gathered are the tunnels that were found.
type gathered struct {
	peers   map[Peer]bool
	unknown map[Unknown]bool
}

func (g *gathered) peer(t tunnel, to netip.Addr, port uint16, source string) {
	for _, p := range t.protocols {
		g.peers[Peer{to, p, port, source}] = true
	}
}

// device adds the remote address of a tunnel, or that its peers are unknown.
func (g *gathered) device(t tunnel) {
	if t.remote.IsValid() {
		g.peer(t, t.remote, t.port, "tunnel "+t.name)
	}
	// A device that is down sends nothing. The module of GRE makes such a one in each network namespace, and is
	// loaded when any pod makes a tunnel of its own.
	if !t.chosen || !t.up {
		return
	}
	if len(t.protocols) == 0 {
		g.unknown[Unknown{Device: t.name, Kind: t.kind}] = true
	}
	for _, p := range t.protocols {
		g.unknown[Unknown{t.name, t.kind, p, t.port}] = true
	}
}

// The ports of the key exchange (RFC 7296).
const ike, ikeNAT = 500, 4500

func (g *gathered) ipsec(s netlink.XfrmState) {
	const source = "IPsec states"
	to, ok := address(s.Dst)
	if !ok {
		return
	}
	add := func(protocol uint8, port uint16) { g.peers[Peer{to, protocol, port, source}] = true }
	if e := s.Encap; e != nil {
		add(unix.IPPROTO_UDP, uint16(e.DstPort))
	} else {
		add(uint8(s.Proto), 0)
	}
	add(unix.IPPROTO_UDP, ike)
	add(unix.IPPROTO_UDP, ikeNAT)
}

func (g *gathered) tunnels() Tunnels {
	return Tunnels{
		Peers: sorted(g.peers, func(a, b Peer) int {
			return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Source, b.Source))
		}),
		Unknown: sorted(g.unknown, func(a, b Unknown) int {
			return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
		}),
	}
}
