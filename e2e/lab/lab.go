package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
)

// The lab's addresses.
//
//	pods   10.1.0.0/24, fd00:1::/64        behind the node, each in a namespace
//	node   192.168.77.1, fd00:77::1        towards the world
//	world  192.168.77.2, fd00:77::2        and every documentation address:
//	       192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 198.18.0.0/15
//	       2001:db8::/32, and the metadata address 169.254.169.254
//
// What remote pods and services.go add has 10.2.0.0/24, fd00:2::/64 and 192.168.78.0/24,
// fd00:78::/64; Services have what a test gives them.
//
// The world's resolver is 192.0.2.53 and 2001:db8::53.
const (
	nodeOut4, nodeOut6   = "192.168.77.1", "fd00:77::1"
	worldOut4, worldOut6 = "192.168.77.2", "fd00:77::2"
)

// The world's resolver.
var (
	Resolver4 = netip.MustParseAddr("192.0.2.53")
	Resolver6 = netip.MustParseAddr("2001:db8::53")
)

var worldRanges = []string{"192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "198.18.0.0/15", "169.254.169.254/32"}

// Network is how pods are joined to the node.
type Network string

// The ways: a link and a host route for each pod, one bridge, or one switch of Open vSwitch.
const (
	Routed   Network = "routed"
	Bridged  Network = "bridge"
	Switched Network = "openvswitch"
)

// Lab is one node with its surroundings.
type Lab struct {
	Network     Network
	Node, World *Host
	// Dataplane is the one of the agents prepared from now on, "" the one of Dataplane.
	Dataplane string
	// Far is the second node, nil until it has a pod.
	Far   *Host
	ovs   *openVSwitch // of a Switched node
	pods  map[string]*Pod
	order []*Host
}

// Pod is a pod's namespace and addresses.
type Pod struct {
	*Host
	Addr4, Addr6 netip.Addr
	// Iface is the end of the pod's link that its node has.
	Iface string
	node  *Host
}

var serial atomic.Uint32

// New builds a lab without pods. What it could build before an error is removed.
func New(network Network) (*Lab, error) {
	if os.Getuid() != 0 {
		return nil, errors.New("the lab makes network namespaces: run it as root")
	}
	l := &Lab{Network: network, pods: map[string]*Pod{}}
	prefix := fmt.Sprintf("ng%d-%d-", os.Getpid(), serial.Add(1))
	err := func() error {
		var err error
		if l.Node, err = l.host(prefix + "node"); err != nil {
			return err
		}
		if l.World, err = l.host(prefix + "world"); err != nil {
			return err
		}
		if err := l.joinWorld(); err != nil {
			return err
		}
		if err := l.Node.hasty("out0"); err != nil {
			return err
		}
		if err := l.Node.reaches(netip.MustParseAddr(worldOut4), netip.MustParseAddr(worldOut6)); err != nil {
			return err
		}
		switch network {
		case Bridged:
			return l.bridge()
		case Switched:
			l.ovs, err = l.startSwitch()
		}
		return err
	}()
	if err != nil {
		return nil, errors.Join(err, l.Remove())
	}
	return l, nil
}

func (l *Lab) host(name string) (*Host, error) {
	h, err := newHost(name)
	if h != nil {
		l.order = append(l.order, h)
	}
	return h, err
}

// joinWorld links node and world, and makes every documentation address local
// to the world.
func (l *Lab) joinWorld() error {
	if err := l.Node.Sysctl("net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"); err != nil {
		return err
	}
	// Servers bind addresses that are local by route alone.
	if err := l.World.Sysctl("net.ipv6.ip_nonlocal_bind=1"); err != nil {
		return err
	}
	steps := []func() error{
		l.ip(l.Node, "link add out0 type veth peer name eth0 netns "+l.World.Name),
		l.ip(l.Node, "addr add "+nodeOut4+"/24 dev out0"), l.ip(l.Node, "addr add "+nodeOut6+"/64 dev out0 nodad"),
		l.ip(l.World, "addr add "+worldOut4+"/24 dev eth0"), l.ip(l.World, "addr add "+worldOut6+"/64 dev eth0 nodad"),
		l.ip(l.Node, "link set out0 up"), l.ip(l.World, "link set eth0 up"),
		l.ip(l.Node, "route add default via "+worldOut4), l.ip(l.Node, "-6 route add default via "+worldOut6),
		l.ip(l.World, "route add 10.1.0.0/24 via "+nodeOut4), l.ip(l.World, "-6 route add fd00:1::/64 via "+nodeOut6),
		l.ip(l.World, "-6 route add local 2001:db8::/32 dev lo"),
	}
	for _, r := range worldRanges {
		steps = append(steps, l.ip(l.World, "route add local "+r+" dev lo"))
	}
	return inOrder(steps)
}

func (l *Lab) bridge() error {
	// A fixed hardware address: otherwise the bridge takes a new one with each port.
	if err := inOrder([]func() error{
		l.ip(l.Node, "link add br0 address 02:00:00:00:00:01 type bridge"),
		l.ip(l.Node, "addr add 10.1.0.1/24 dev br0"), l.ip(l.Node, "addr add fd00:1::1/64 dev br0 nodad"),
		l.ip(l.Node, "link set br0 up"),
	}); err != nil {
		return err
	}
	return l.Node.Sysctl("net.bridge.bridge-nf-call-iptables=1", "net.bridge.bridge-nf-call-ip6tables=1")
}

// AddPod makes a pod with the addresses 10.1.0.N and fd00:1::N. Ready tells when
// it can be reached.
func (l *Lab) AddPod(name string, n int) (*Pod, error) {
	p, err := l.newPod(l.Node, 1, name, n)
	if err != nil {
		return nil, err
	}
	join, dev := l.joinRouted, p.Iface
	switch l.Network {
	case Bridged:
		join, dev = l.joinBridge, "br0"
	case Switched:
		join, dev = l.joinSwitch, "br0"
	}
	if err := join(p); err != nil {
		return nil, err
	}
	if err := l.Node.hasty(dev); err != nil {
		return nil, err
	}
	return p, nil
}

// newPod makes a pod with the addresses 10.NET.0.N and fd00:NET::N, linked to a node.
func (l *Lab) newPod(node *Host, net byte, name string, n int) (*Pod, error) {
	h, err := l.host(strings.TrimSuffix(l.Node.Name, "node") + name)
	if err != nil {
		return nil, err
	}
	p := &Pod{
		Host: h, node: node, Iface: fmt.Sprintf("veth%d", n),
		Addr4: netip.AddrFrom4([4]byte{10, net, 0, byte(n)}), Addr6: netip.MustParseAddr(fmt.Sprintf("fd00:%d::%x", net, n)),
	}
	l.pods[name] = p
	return p, l.ip(node, "link add "+p.Iface+" type veth peer name eth0 netns "+h.Name)()
}

// Ready waits until the node reaches every pod: a new link takes a moment.
func (l *Lab) Ready() error {
	for _, p := range l.pods {
		if err := l.Node.reaches(p.Addr4, p.Addr6); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lab) joinBridge(p *Pod) error {
	return inOrder([]func() error{
		l.ip(l.Node, "link set "+p.Iface+" master br0 up"), l.ip(l.Node, "link set "+p.Iface+" type bridge_slave hairpin on"),
		func() error { return l.configure(p) },
	})
}

// configure gives a pod on a bridge or a switch its addresses and routes.
func (l *Lab) configure(p *Pod) error {
	return inOrder([]func() error{
		l.ip(p.Host, "link set eth0 up"),
		l.ip(p.Host, "addr add "+p.Addr4.String()+"/24 dev eth0"), l.ip(p.Host, "addr add "+p.Addr6.String()+"/64 dev eth0 nodad"),
		l.ip(p.Host, "route add default via 10.1.0.1"), l.ip(p.Host, "-6 route add default via fd00:1::1"),
	})
}

// joinRouted is what routed CNIs do: the pod's gateway is a link-local address
// that the node answers for, and the node has one route for each pod.
func (l *Lab) joinRouted(p *Pod) error {
	if err := inOrder([]func() error{
		l.ip(p.node, "link set "+p.Iface+" up"), l.ip(p.Host, "link set eth0 up"),
		l.ip(p.Host, "addr add "+p.Addr4.String()+"/32 dev eth0"), l.ip(p.Host, "addr add "+p.Addr6.String()+"/128 dev eth0 nodad"),
		l.ip(p.Host, "route add 169.254.1.1 dev eth0 scope link"), l.ip(p.Host, "route add default via 169.254.1.1"),
		l.ip(p.node, "route add "+p.Addr4.String()+"/32 dev "+p.Iface), l.ip(p.node, "-6 route add "+p.Addr6.String()+"/128 dev "+p.Iface),
		l.ip(p.node, "addr add fe80::77/64 dev "+p.Iface+" nodad"),
		l.ip(p.Host, "-6 route add default via fe80::77 dev eth0"),
	}); err != nil {
		return err
	}
	return p.node.Sysctl("net.ipv4.conf."+p.Iface+".proxy_arp=1", "net.ipv4.neigh."+p.Iface+".proxy_delay=0")
}

// hasty makes the host ask again soon for a neighbour that it asked for before
// the link was ready.
func (h *Host) hasty(dev string) error {
	return h.Sysctl("net.ipv6.neigh."+dev+".retrans_time_ms=50", "net.ipv4.neigh."+dev+".retrans_time_ms=50")
}

// Pod returns a pod by name, nil without one.
func (l *Lab) Pod(name string) *Pod { return l.pods[name] }

// RemovePod takes a pod away, its links with it.
func (l *Lab) RemovePod(name string) error {
	p := l.pods[name]
	delete(l.pods, name)
	for i, h := range l.order {
		if h == p.Host {
			l.order = append(l.order[:i], l.order[i+1:]...)
			break
		}
	}
	return errors.Join(l.ip(p.node, "link del "+p.Iface)(), p.remove(), l.forget(p))
}

// forget makes the pod's node look anew for who has a pod's addresses, as the
// announcement of a CNI plugin for the next pod would.
func (l *Lab) forget(p *Pod) error {
	return errors.Join(l.ip(p.node, "neigh flush to "+p.Addr4.String())(), l.ip(p.node, "-6 neigh flush to "+p.Addr6.String())())
}

// Remove takes the whole lab down.
func (l *Lab) Remove() error {
	errs := []error{l.ovs.stop()}
	for i := len(l.order) - 1; i >= 0; i-- {
		errs = append(errs, l.order[i].remove())
	}
	l.order = nil
	return errors.Join(errs...)
}

func (l *Lab) ip(h *Host, line string) func() error {
	return func() error { return h.IP(strings.Fields(line)...) }
}

func inOrder(steps []func() error) error {
	for _, s := range steps {
		if err := s(); err != nil {
			return err
		}
	}
	return nil
}

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
