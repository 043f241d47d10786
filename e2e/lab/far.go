package lab

import (
	"net/netip"
	"strings"
)

// The second node, which runs no agent, and its pods:
//
//	far    192.168.78.2, fd00:78::2    linked to the node
//	pods   10.2.0.0/24, fd00:2::/64    routed, whatever the lab's network is
const (
	nodeFar4, nodeFar6 = "192.168.78.1", "fd00:78::1"
	farOut4, farOut6   = "192.168.78.2", "fd00:78::2"
)

// AddRemotePod makes a pod of the second node with the addresses 10.2.0.N and
// fd00:2::N, and that node if it is the first. Ready tells when it can be reached.
func (l *Lab) AddRemotePod(name string, n int) (*Pod, error) {
	if l.Far == nil {
		if err := l.joinFar(); err != nil {
			return nil, err
		}
	}
	p, err := l.newPod(l.Far, 2, name, n)
	if err != nil {
		return nil, err
	}
	return p, inOrder([]func() error{func() error { return l.joinRouted(p) }, func() error { return l.Far.hasty(p.Iface) }})
}

// joinFar makes the second node and links it to the first.
func (l *Lab) joinFar() error {
	far, err := l.host(strings.TrimSuffix(l.Node.Name, "node") + "far")
	if err != nil {
		return err
	}
	l.Far = far
	return inOrder([]func() error{
		func() error { return far.Sysctl("net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1") },
		l.ip(l.Node, "link add far0 type veth peer name eth0 netns "+far.Name),
		l.ip(l.Node, "addr add "+nodeFar4+"/24 dev far0"), l.ip(l.Node, "addr add "+nodeFar6+"/64 dev far0 nodad"),
		l.ip(far, "addr add "+farOut4+"/24 dev eth0"), l.ip(far, "addr add "+farOut6+"/64 dev eth0 nodad"),
		l.ip(l.Node, "link set far0 up"), l.ip(far, "link set eth0 up"),
		l.ip(l.Node, "route add 10.2.0.0/24 via "+farOut4), l.ip(l.Node, "-6 route add fd00:2::/64 via "+farOut6),
		l.ip(far, "route add default via "+nodeFar4), l.ip(far, "-6 route add default via "+nodeFar6),
		l.ip(l.World, "route add 10.2.0.0/24 via "+nodeOut4), l.ip(l.World, "-6 route add fd00:2::/64 via "+nodeOut6),
		func() error { return l.Node.hasty("far0") }, func() error { return far.hasty("eth0") },
		func() error { return l.Node.reaches(netip.MustParseAddr(farOut4), netip.MustParseAddr(farOut6)) },
	})
}
