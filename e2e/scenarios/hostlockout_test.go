package scenarios

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// closedHost are policies that deny the node everything of some traffic in both directions, by every interface.
func closedHost(traffics ...string) (out string) {
	for _, traffic := range traffics {
		p := strings.Replace(hostPolicy("[{action: Deny}]"), "spec: {", `spec: {interfaces: ["*"], ingress: [{action: Deny}], traffic: `+traffic+", ", 1)
		if traffic == "BeforeNAT" {
			p = strings.Replace(p, ", egress: [{action: Deny}]", "", 1)
		}
		out += "---\n" + strings.Replace(p, "name: hosts", "name: "+strings.ToLower(traffic), 1)
	}
	return out
}

// The addresses of the node node-2.
const otherNode, otherNodeV6 = "198.51.100.77", "2001:db8:1::77"

// hostNodes are the Node objects of the lab's node and of node-2.
const hostNodes = hostNode + "---\napiVersion: v1\nkind: Node\nmetadata: {name: node-2}\nstatus: {addresses: [{type: InternalIP, address: " + otherNode + "}, {type: InternalIP, address: \"" + otherNodeV6 + "\"}]}\n"

// TestOverlayOfAClosedNode: the packets of a VXLAN between pods go on under a policy that denies
// the node everything, to the address of a Node. An outsider who sends to the tunnel is learned by the device, and
// is not reached.
func TestOverlayOfAClosedNode(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		const outsider = "198.51.100.79"
		s := newHostStage(t, kind, "")
		own := s.nodeAddr()
		overlay := func(h *lab.Host, local, address string) {
			t.Helper()
			run(t, h, "ip", "link", "add", "vx0", "type", "vxlan", "id", "42", "dstport", "8472", "local", local)
			run(t, h, "ip", "addr", "add", address+"/24", "dev", "vx0")
			run(t, h, "ip", "link", "set", "vx0", "up")
		}
		overlay(s.Node, own.String(), "10.99.0.1")
		overlay(s.World, otherNode, "10.99.0.2")
		run(t, s.World, "ip", "route", "add", s.Pod("a").Addr4.String(), "via", "10.99.0.1") // what comes back arrives by the tunnel
		run(t, s.World, "bridge", "fdb", "append", "00:00:00:00:00:00", "dev", "vx0", "dst", own.String())
		run(t, s.Node, "bridge", "fdb", "append", "00:00:00:00:00:00", "dev", "vx0", "dst", otherNode)
		s.start(map[string]string{"node.yaml": hostNodes, "a.yaml": s.Pod("a").Manifest("shop", "a", nil)})
		s.expect("a", "tcp", "10.99.0.2:80", lab.Answered)
		s.apply(map[string]string{"policy.yaml": closedHost("Local", "Untracked") + strings.Replace(closedHost("BeforeNAT"), `["*"]`, "[out0]", 1)})
		s.passes(s.Node, "", "tcp", otherNode+":80", false)
		s.passes(s.Node, "", "udp", "198.51.100.78:8472", false)
		s.expect("a", "tcp", "10.99.0.2:80", lab.Answered)
		s.expect("a", "tcp", "10.99.0.2:81", lab.Answered)
		s.apply(map[string]string{"policy.yaml": hostPolicy("[{action: Deny}]")}) // or the outsider is not learned
		run(t, s.World, "ip", "link", "set", "vx0", "type", "vxlan", "id", "42", "local", outsider)
		fatal.Await(t, "the device learns the outsider", func() bool {
			_ = s.World.Forge("udp", "10.99.0.2", netip.MustParseAddrPort("10.99.0.1:9"))
			out, err := s.Node.Run("bridge", "fdb", "show", "dev", "vx0")
			return err == nil && strings.Contains(out, "dst "+outsider)
		})
		time.Sleep(2 * nodePoll)
		s.passes(s.Node, "", "udp", outsider+":8472", false)
		if got := s.Pod("a").Probe("tcp", netip.MustParseAddrPort("10.99.0.2:443")); got == lab.Answered {
			t.Error("an outsider who was learned is reached")
		}
	})
}

// nodePoll is how often the agent reads the node's addresses and resolvers.
const nodePoll = 5 * time.Second

// nodeAddr returns the node's IPv4 address towards the world.
func (s *stage) nodeAddr() (a netip.Addr) {
	s.t.Helper()
	c, err := s.Node.Dial("udp", "198.51.100.1:9", lab.Limit)
	fatal.If(s.t, err)
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr()
}

// TestFailsafesOfAClosedNode: a node that is denied everything reaches each row of the table of failsafes, is reached by
// those that have one, and nothing just beside it passes. A host that connects to it, also from a port of the table,
// opens nothing.
func TestFailsafesOfAClosedNode(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s := newHostStage(t, kind, "failsafe out 198.51.100.9 2001:db8:1::9 TCP 8443\n    failsafe nodes 198.51.100.64/30")
		s.serve(s.Node, 22, 179, 2379, 8081, 8472, 10250, 10251)
		const outsider = "198.51.100.180:179"
		session, err := s.World.DialFrom("tcp", outsider, netip.AddrPortFrom(s.nodeAddr(), 8081).String(), lab.Limit)
		fatal.If(t, err)
		defer session.Close()
		s.serve(s.World, 67, 123, 179, 2379, 8443, 8472, 10250, 10251)
		s.start(map[string]string{"node.yaml": hostNodes})
		// Rules before connection tracking judge each packet, also of open connections.
		for i, open := range []lab.Outcome{lab.Answered, lab.Silent} {
			traffics := []string{"Local", "BeforeNAT", "Untracked"}[:2+i]
			s.apply(map[string]string{"policy.yaml": closedHost(traffics...)})
			s.failsafesOut()
			s.failsafesIn()
			dhcp, err := s.Node.DialFrom("udp", "0.0.0.0:68", "198.51.100.5:67", lab.Limit)
			fatal.If(t, err)
			diff.Equal(t, lab.Answered, lab.Echo(dhcp, lab.Limit), "a DHCP server")
			dhcp.Close()
			s.linkPackets()
			diff.Equal(t, open, lab.Echo(session, lab.PatienceFor(open)), "an outsider who is connected")
			if t.Failed() {
				t.Fatal("closed to", traffics)
			}
		}
		s.apply(map[string]string{"policy.yaml": closedHost("Local")})
		time.Sleep(2 * nodePoll)
		s.passes(s.Node, "", "tcp", "198.51.100.180:10250", false)
		s.passes(s.Node, "", "tcp", outsider, false)
		s.resolversMove()
	})
}

// passes demands whether a host that dials is answered; from is its address.
func (s *stage) passes(h *lab.Host, from, network, to string, want bool) {
	s.t.Helper()
	patience := lab.Patience
	if want {
		patience = lab.Limit
	}
	c, err := h.DialFrom(network, from, to, patience)
	got := err == nil
	if got {
		got = lab.Echo(c, patience) == lab.Answered
		c.Close()
	}
	diff.Equal(s.t, want, got, h.Name, from, network, "to", to, err)
}

// failsafesOut probes from the node.
func (s *stage) failsafesOut() {
	s.t.Helper()
	var all sync.WaitGroup
	defer all.Wait()
	for want, rows := range map[bool][][2]string{true: {
		{"tcp", otherNode + ":179"}, {"tcp", otherNode + ":2379"}, {"tcp", otherNode + ":10250"}, {"udp", otherNode + ":8472"},
		{"tcp", "[" + otherNodeV6 + "]:10250"}, {"udp", "[" + otherNodeV6 + "]:8472"}, {"tcp", "198.51.100.67:10250"},
		{"udp", "198.51.100.5:123"}, {"udp", "[2001:db8:1::5]:123"}, {"tcp", "198.51.100.9:8443"}, {"tcp", "[2001:db8:1::9]:8443"},
	}, false: {
		{"tcp", otherNode + ":10251"}, {"udp", otherNode + ":10250"}, {"tcp", otherNode + ":8472"}, {"tcp", otherNode + ":80"},
		{"tcp", "198.51.100.78:10250"}, {"udp", "198.51.100.78:8472"}, {"tcp", "[2001:db8:1::78]:10250"}, {"tcp", "198.51.100.68:10250"},
		{"tcp", "198.51.100.5:123"}, {"tcp", "198.51.100.10:8443"}, {"tcp", "198.51.100.9:443"}, {"udp", "198.51.100.5:67"}, {"tcp", "192.0.2.53:80"},
	}} {
		for _, row := range rows {
			all.Go(func() { s.passes(s.Node, "", row[0], row[1], want) })
		}
	}
}

// failsafesIn probes to the node.
func (s *stage) failsafesIn() {
	s.t.Helper()
	var all sync.WaitGroup
	defer all.Wait()
	own := map[bool]string{true: s.nodeAddr().String(), false: nodeOut6}
	for want, rows := range map[bool][][3]string{true: {
		{otherNode, "tcp", "179"}, {otherNode, "tcp", "2379"}, {otherNode, "tcp", "10250"}, {otherNode, "udp", "8472"}, {"198.51.100.78", "tcp", "22"},
		{otherNodeV6, "tcp", "10250"}, {otherNodeV6, "udp", "8472"}, {"2001:db8:1::78", "tcp", "22"}, {"198.51.100.67", "tcp", "10250"},
	}, false: {
		{otherNode, "tcp", "10251"}, {otherNode, "udp", "10250"}, {otherNode, "tcp", "8081"}, {otherNode, "tcp", "8472"}, {"198.51.100.78", "udp", "22"},
		{"198.51.100.78", "tcp", "10250"}, {"198.51.100.78", "udp", "8472"}, {"2001:db8:1::78", "tcp", "10250"}, {"2001:db8:1::78", "udp", "8472"}, {"198.51.100.68", "tcp", "10250"},
	}} {
		for _, row := range rows {
			all.Go(func() {
				s.passes(s.World, row[0], row[1], net.JoinHostPort(own[netip.MustParseAddr(row[0]).Is4()], row[2]), want)
			})
		}
	}
}

// linkPackets sends what a node needs on its link, and the same to other destinations or over routers.
func (s *stage) linkPackets() {
	s.t.Helper()
	solicit, report, join := make([]byte, 24), make([]byte, 8), []byte{0x22, 0, 0xdd, 0xff, 0, 0, 0, 0}
	solicit[0], report[0] = 135, 143
	for _, p := range []struct {
		protocol int
		message  []byte
		to       string
		hops     int
		leaves   bool
	}{
		{unix.IPPROTO_ICMPV6, solicit, "2001:db8:1::1", 255, true}, {unix.IPPROTO_ICMPV6, solicit, "2001:db8:1::1", 64, false},
		{unix.IPPROTO_ICMPV6, report, "ff02::16", 1, true}, {unix.IPPROTO_ICMPV6, report, "2001:db8:1::1", 1, false},
		{unix.IPPROTO_IGMP, join, "224.0.0.22", 1, true}, {unix.IPPROTO_IGMP, join, "198.51.100.5", 1, false},
		{unix.IPPROTO_ESP, join, otherNode, 64, true}, {unix.IPPROTO_ESP, join, "198.51.100.78", 64, false},
	} {
		if err := s.sendRaw(p.protocol, p.message, netip.MustParseAddr(p.to), p.hops); (err == nil) != p.leaves {
			s.t.Errorf("protocol %d, type %d, to %s with %d hops: %v, want that it leaves: %v", p.protocol, p.message[0], p.to, p.hops, err, p.leaves)
		}
	}
}

// sendRaw sends a packet of a protocol from the node. A packet that a rule of the output hook denies is an error.
func (s *stage) sendRaw(protocol int, message []byte, to netip.Addr, hops int) error {
	return s.Node.Do(func() error {
		out0, err := net.InterfaceByName("out0")
		if err != nil {
			return err
		}
		domain, at := unix.AF_INET, unix.Sockaddr(nil)
		if to.Is6() {
			domain, at = unix.AF_INET6, &unix.SockaddrInet6{Addr: to.As16(), ZoneId: uint32(out0.Index)}
		} else {
			at = &unix.SockaddrInet4{Addr: to.As4()}
		}
		fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if to.Is6() {
			err = errors.Join(unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, hops), unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, hops))
		} else {
			err = unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, &unix.IPMreqn{Ifindex: int32(out0.Index)})
		}
		return errors.Join(err, unix.Sendto(fd, message, 0, at))
	})
}

// resolversMove gives the host another resolver, and then a third: each is a failsafe while it is a resolver.
func (s *stage) resolversMove() {
	s.t.Helper()
	asks := func(resolver netip.Addr) bool {
		c, err := s.Node.Dial("tcp", netip.AddrPortFrom(resolver, 53).String(), lab.Limit)
		if err == nil {
			c.Close()
		}
		return err == nil
	}
	other, third := netip.MustParseAddr("203.0.113.53"), netip.MustParseAddr("203.0.113.54")
	for _, r := range []netip.Addr{other, third} {
		dns, err := s.World.Listen(netip.AddrPortFrom(r, 53).String())
		fatal.If(s.t, err)
		s.t.Cleanup(func() { dns.Close() })
		if asks(r) {
			s.t.Errorf("%s is reached before it is a resolver", r)
		}
	}
	s.hostAsks(other)
	fatal.Await(s.t, "a new resolver of the host", func() bool { return asks(other) })
	s.hostAsks() // as a program that writes the file anew
	time.Sleep(2 * nodePoll)
	if !asks(other) {
		s.t.Error("the last resolver is gone while the file lists none")
	}
	s.hostAsks(third)
	fatal.Await(s.t, "a third resolver of the host", func() bool { return asks(third) && !asks(other) })
}
