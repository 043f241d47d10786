package enforcer_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/enforcer"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// The node's addresses on the link to the world, and the world's there and behind it.
var (
	uplinks = []netip.Addr{netip.MustParseAddr("192.168.77.1"), netip.MustParseAddr("fd00:77::1")}
	worlds  = []netip.Addr{netip.MustParseAddr("192.168.77.2"), netip.MustParseAddr("fd00:77::2")}
)

// nodeRule is a rule of the node for everywhere.
func nodeRule(traffic policy.Traffic, ingress bool, action policy.Action, ports policy.PortSet) *policy.Rule {
	return &policy.Rule{Tier: policy.Admin, OfNode: policy.OfNode{Traffic: traffic}, Ingress: ingress, Action: action, Ports: ports, Policy: "node"}
}

// closeNode denies everything of some traffic in both directions behind other rules.
func (p *peering) closeNode(first []*policy.Rule, traffics ...policy.Traffic) {
	p.nodeRules = first
	for _, t := range traffics {
		p.nodeRules = append(p.nodeRules, nodeRule(t, true, policy.Deny, policy.AnyPort))
		if t != policy.BeforeNAT {
			p.nodeRules = append(p.nodeRules, nodeRule(t, false, policy.Deny, policy.AnyPort))
		}
	}
	p.apply()
}

// nodePeering serves 80 and 81 on a node that is a subject, with no pod that is.
func (p *peering) nodePeering(t *testing.T) {
	serves, err := p.Node.Serve(80, 81)
	fatal.If(t, err)
	t.Cleanup(serves.Close)
	p.ordered, p.labels["client"] = map[string][]*policy.Rule{}, "client"
	p.node = &policy.Node{Name: "node", Addrs: p.nodeAddrs(), Interfaces: everywhere}
}

// are expects outcomes of one host's connections to a port of addresses.
func (p *peering) are(when string, want lab.Outcome, from *lab.Host, network string, port uint16, to ...netip.Addr) {
	p.t.Helper()
	for _, a := range to {
		got := from.ProbeFor(network, netip.AddrPortFrom(a, port), lab.PatienceFor(want))
		if want == lab.Silent && got != lab.Answered { // however it is denied
			continue
		}
		diff.Equal(p.t, want, got, when, network, "to", a, port)
	}
}

// serveDNS echoes queries over UDP to the agent's address of IPv4.
func (p *peering) serveDNS() {
	p.t.Helper()
	var serving []netip.Addr
	fatal.If(p.t, p.Node.Do(func() (err error) { serving, err = p.e.Refresh(context.Background()); return err }))
	serving = slices.DeleteFunc(serving, netip.Addr.Is6)
	p.echo(p.Node, netip.AddrPortFrom(serving[0], 53).String())
}

// echo echoes over UDP.
func (p *peering) echo(h *lab.Host, at string) {
	p.t.Helper()
	c, err := h.ListenPacket("udp", at)
	fatal.If(p.t, err)
	p.t.Cleanup(func() { c.Close() })
	go func() {
		for b := make([]byte, 999); ; {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = c.WriteTo(b[:n], from)
		}
	}()
}

// TestFailsafesOfAClosedNode: on a node whose rules deny everything by every interface failsafes of both directions go
// on, for every traffic, and so do its link, its own processes and the replies that pods wait for. A packet from outside
// is no packet of the node because it has the node's address.
func TestFailsafesOfAClosedNode(t *testing.T) {
	t.Parallel()
	eachPeering(t, func(t *testing.T, p *peering) {
		p.nodePeering(t)
		db, outside := p.Pod("db"), outsides(1)
		pods := []netip.Addr{db.Addr4, db.Addr6}
		row := func(in bool, ports ...policy.PortRange) (out []policy.Failsafe) {
			for _, network := range []string{"0.0.0.0/0", "::/0"} {
				out = append(out, policy.Failsafe{Name: fmt.Sprint(network, in), In: in, Out: !in, Ports: ports, Networks: []netip.Prefix{netip.MustParsePrefix(network)}})
			}
			return out
		}
		p.node.Failsafes = append(row(true, policy.PortRange{Protocol: policy.TCP, First: 80, Last: 80}), row(false, policy.PortRange{Protocol: policy.TCP, First: 81, Last: 81})...)
		heard, err := p.Node.ListenPacket("udp", "[::]:90")
		fatal.If(t, err)
		t.Cleanup(func() { heard.Close() })
		p.labels["other"] = "gated other"
		p.apply()
		p.serveDNS()
		// hears tells whether a packet from outside with the node's own address arrives.
		hears := func(when string) bool {
			c, err := p.World.DialFrom("udp", "[fd00:77::1]:0", "[fd00:77::1]:90", lab.Limit)
			fatal.If(t, err)
			defer c.Close()
			for range 5 {
				if _, err := c.Write([]byte(when)); err != nil {
					t.Fatal(err)
				}
			}
			fatal.If(t, heard.SetReadDeadline(time.Now().Add(lab.Patience)))
			for b := make([]byte, 99); ; {
				n, _, err := heard.ReadFrom(b)
				if err != nil || string(b[:n]) == when {
					return err == nil
				}
			}
		}
		p.apply()
		if !hears("without rules") {
			t.Error("without rules a packet with the node's address does not arrive")
		}
		for _, traffics := range [][]policy.Traffic{{policy.Local}, {policy.BeforeNAT}, {policy.Untracked}, {policy.Local, policy.Forwarded, policy.BeforeNAT, policy.Untracked}} {
			p.closeNode(nil, traffics...)
			when := fmt.Sprint(traffics)
			for _, host := range []*lab.Host{p.Node, p.World} {
				_, err := host.Run("ip", "neigh", "flush", "all")
				fatal.If(t, err)
			}
			p.are(when, lab.Answered, p.World, "tcp", 80, uplinks...)
			p.are(when, lab.Silent, p.World, "tcp", 81, uplinks...)
			p.are(when, lab.Silent, p.World, "udp", 80, uplinks...)
			p.are(when, lab.Answered, p.Node, "tcp", 81, outside...)
			p.are(when, lab.Answered, p.Node, "tcp", 81, pods...)
			p.are(when, lab.Answered, p.Node, "tcp", 80, p.node.Addrs...)
			p.are(when, lab.Answered, p.Pod("client").Host, "tcp", 80, uplinks...)
			fatal.If(t, p.Node.Do(func() error { return p.e.InForce().Heartbeat(context.Background()) }))
			p.are(when, lab.Answered, p.Pod("other").Host, "udp", 53, lab.Resolver4)
			if traffics[0] != policy.BeforeNAT {
				p.are(when, lab.Silent, p.Node, "tcp", 80, outside...)
			}
			if hears(when) {
				t.Errorf("%s: a packet from outside passes with the node's address", when)
			}
		}
	})
}

// TestMarksOfAcceptedPackets: what a rule before translation accepts passes the later rules of the node, by a mark that
// no other packet has because another program or a socket set it, and that leaves the node on no packet.
func TestMarksOfAcceptedPackets(t *testing.T) {
	t.Parallel()
	eachPeering(t, func(t *testing.T, p *peering) {
		p.nodePeering(t)
		db, outside := p.Pod("db"), outsides(1)
		fatal.If(t, p.SetServices(
			lab.Service{Addr: uplinks[0], Protocol: "tcp", Port: nodePort, To: []netip.AddrPort{netip.AddrPortFrom(db.Addr4, 80)}},
			lab.Service{Addr: uplinks[1], Protocol: "tcp", Port: nodePort, To: []netip.AddrPort{netip.AddrPortFrom(db.Addr6, 80)}}))
		marked := fmt.Sprintf("%#x", enforcer.DefaultAccepted)
		// dials tells whether a socket of the node with the mark opens a connection.
		dials := func(to netip.Addr) (opened bool) {
			d := net.Dialer{Timeout: lab.Patience, Control: func(_, _ string, c syscall.RawConn) error {
				return c.Control(func(fd uintptr) {
					fatal.If(t, unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, enforcer.DefaultAccepted))
				})
			}}
			fatal.If(t, p.Node.Do(func() error {
				c, err := d.Dial("tcp", netip.AddrPortFrom(to, 80).String())
				if opened = err == nil; opened {
					return c.Close()
				}
				return nil
			}))
			return opened
		}
		for _, untracked := range [][]policy.Traffic{nil, {policy.Untracked}} {
			first := []*policy.Rule{nodeRule(policy.BeforeNAT, true, policy.Accept, "tcp/30080"), nodeRule(policy.BeforeNAT, true, policy.Accept, "tcp/80")}
			for range untracked {
				first = append(first, nodeRule(policy.Untracked, true, policy.Accept, "udp/80"), nodeRule(policy.Untracked, false, policy.Accept, "udp/80"))
			}
			p.closeNode(first, policy.Local, policy.Forwarded)
			// Some packets of the kernel's own, as reports of MLD, have marks of any value.
			fatal.If(t, p.Node.Pipe("table inet other {\ncounter left {}\nchain in { type filter hook prerouting priority raw; meta mark set "+marked+"; }\n"+
				"chain post { type filter hook postrouting priority mangle; meta l4proto { tcp, udp } meta mark & "+marked+" != 0 counter name left; }\n}\n", "nft", "-f", "-"))
			when := fmt.Sprint("beside rules for ", untracked)
			p.are(when, lab.Answered, p.World, "tcp", nodePort, uplinks...)
			p.are(when, lab.Answered, p.World, "tcp", 80, uplinks[0], uplinks[1], db.Addr4, db.Addr6)
			p.are(when, lab.Silent, p.World, "tcp", 81, uplinks[0], uplinks[1], db.Addr4, db.Addr6)
			for _, a := range outside {
				if dials(a) {
					t.Errorf("%s: a socket with the mark opens a connection to %s", when, a)
				}
			}
			out, err := p.Node.Run("nft", "list", "counter", "inet", "other", "left")
			fatal.If(t, err)
			diff.Has(t, "packets 0 ", out, when, "packets that leave with the mark")
			_, err = p.Node.Run("nft", "delete", "table", "inet", "other") // the next rules are not in force for all hooks at once
			fatal.If(t, err)
		}
	})
}

// TestUntrackedServices: a service of the node goes on without an entry of connection tracking where both directions have
// a rule, and stops when one of them goes. To pods it is tracked all the same.
func TestUntrackedServices(t *testing.T) {
	t.Parallel()
	eachPeering(t, func(t *testing.T, p *peering) {
		p.nodePeering(t)
		in, out := nodeRule(policy.Untracked, true, policy.Accept, "tcp/80,udp/80"), nodeRule(policy.Untracked, false, policy.Accept, policy.AnyPort)
		entries := func() int {
			list, err := p.Node.Run("conntrack", "-L")
			fatal.If(t, err)
			return strings.Count(list, "dport=80 ")
		}
		both := func(when string, want lab.Outcome) {
			t.Helper()
			for _, network := range []string{"tcp", "udp"} {
				p.are(when, want, p.World, network, 80, uplinks...)
				p.are(when, lab.Answered, p.Pod("client").Host, network, 80, uplinks...)
			}
		}
		p.closeNode([]*policy.Rule{in, out}, policy.Local, policy.Untracked)
		p.node.Failsafes = []policy.Failsafe{{Name: "pods", In: true, Networks: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24"), netip.MustParsePrefix("fd00:1::/64")}}}
		p.node = &policy.Node{Name: p.node.Name, Addrs: p.node.Addrs, Interfaces: everywhere, Failsafes: p.node.Failsafes}
		p.apply()
		_, err := p.Node.Run("conntrack", "-F")
		fatal.If(t, err)
		for _, network := range []string{"tcp", "udp"} {
			p.are("both directions", lab.Answered, p.World, network, 80, uplinks...)
		}
		diff.Equal(t, 0, entries(), "entries of connection tracking")
		both("both directions", lab.Answered)
		if entries() == 0 {
			t.Error("connections of pods have no entries")
		}
		for when, one := range map[string]*policy.Rule{"in alone": in, "out alone": out} {
			p.closeNode([]*policy.Rule{one}, policy.Local, policy.Untracked)
			both(when, lab.Silent)
		}
	})
}

// TestAnswersOfFailsafes: beside rules for untracked packets that deny everything a failsafe answers the node, and
// a sender that has its port opens nothing.
func TestAnswersOfFailsafes(t *testing.T) {
	t.Parallel()
	eachPeering(t, func(t *testing.T, p *peering) {
		p.nodePeering(t)
		everyone := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
		p.node.Failsafes = []policy.Failsafe{
			{Name: "time", Out: true, Networks: everyone, Ports: []policy.PortRange{{Protocol: policy.UDP, First: 90, Last: 91}}},
			{Name: "shell", In: true, Networks: everyone, Ports: []policy.PortRange{{Protocol: policy.UDP, First: 80, Last: 82}}},
		}
		p.echo(p.World, "[::]:90")
		p.echo(p.World, "[::]:83")
		p.echo(p.Node, "[::]:83")
		// from tells whether a packet from a port of one host is answered by another.
		from := func(h *lab.Host, source netip.AddrPort, to netip.AddrPort) bool {
			c, err := h.DialFrom("udp", source.String(), to.String(), lab.Limit)
			fatal.If(t, err)
			defer c.Close()
			return lab.Echo(c, lab.Patience) == lab.Answered
		}
		for _, closed := range []bool{false, true} {
			when, port := fmt.Sprint("closed=", closed), uint16(80) // another one is no open connection
			if p.apply(); closed {
				port = 83
				p.closeNode(nil, policy.Untracked)
				p.are(when, lab.Answered, p.Node, "udp", 90, worlds...)
				p.are(when, lab.Answered, p.World, "udp", 80, uplinks...)
			}
			for i, node := range uplinks {
				diff.Equal(t, !closed, from(p.World, netip.AddrPortFrom(worlds[i], 91), netip.AddrPortFrom(node, port)), when, "from the port of a failsafe to", node)
				diff.Equal(t, !closed, from(p.Node, netip.AddrPortFrom(node, 82), netip.AddrPortFrom(worlds[i], port)), when, "from the port of a failsafe of", node)
			}
		}
	})
}

// TestForwardedPacketsOfNoConnection: what the raw socket of a pod sends without beginning a connection is judged as
// what begins one.
func TestForwardedPacketsOfNoConnection(t *testing.T) {
	t.Parallel()
	eachPeering(t, func(t *testing.T, p *peering) {
		p.nodePeering(t)
		p.apply()
		world, err := p.World.Sniff("eth0")
		fatal.If(t, err)
		t.Cleanup(world.Close)
		pod, tokens := p.Pod("client"), uint32(0)
		sent := func(when string, want bool) {
			t.Helper()
			for i, src := range []netip.Addr{pod.Addr4, pod.Addr6} {
				dst, next := outsides(1)[i], func() []byte { tokens++; return lab.Token(tokens) }
				from, to := netip.AddrPortFrom(src, 7000+uint16(tokens)), netip.AddrPortFrom(dst, 80)
				packets := map[string]lab.Packet{
					"ACK":         {Proto: 6, Payload: lab.TCP(from, to, lab.ACK|lab.PSH, next())},
					"SYN and FIN": {Proto: 6, Payload: lab.TCP(from, to, lab.SYN|lab.FIN, next())},
				}
				if dst.Is6() {
					packets["solicitation of a neighbor"] = lab.Packet{Proto: 58, Payload: lab.ICMP(src, dst, 135, 0, append(make([]byte, 4), next()...))}
				}
				for name, packet := range packets {
					packet.Src, packet.Dst = src, dst
					fatal.If(t, pod.Do(func() error { return sendRaw(packet.Bytes(), dst) }))
					fatal.If(t, world.Settle(p.Node))
					token := packet.Payload[len(packet.Payload)-len(lab.Token(0)):]
					diff.Equal(t, want, world.SawToken(token) > 0, when, name, "to", dst, "arrives")
				}
			}
		}
		sent("without rules", true)
		p.closeNode(nil, policy.Forwarded)
		sent("closed", false)
		p.nodeRules = []*policy.Rule{nodeRule(policy.Forwarded, true, policy.Deny, policy.AnyPort)}
		p.apply()
		sent("closed for what arrives", false)
	})
}

// TestPacketsThatBeginNothing: beside rules that deny everything that begins a connection, a segment that passes since it
// begins none has no connection opened behind it.
func TestPacketsThatBeginNothing(t *testing.T) {
	t.Parallel()
	eachPeering(t, func(t *testing.T, p *peering) {
		p.nodePeering(t)
		db := p.Pod("db")
		fatal.If(t, p.SetServices(
			lab.Service{Addr: uplinks[0], Protocol: "tcp", Port: nodePort, To: []netip.AddrPort{netip.AddrPortFrom(db.Addr4, 80)}},
			lab.Service{Addr: uplinks[1], Protocol: "tcp", Port: nodePort, To: []netip.AddrPort{netip.AddrPortFrom(db.Addr6, 80)}}))
		source := uint16(7000)
		for _, traffic := range []policy.Traffic{policy.Local, policy.BeforeNAT} {
			for _, closed := range []bool{false, true} {
				if p.nodeRules = nil; closed {
					p.nodeRules = []*policy.Rule{nodeRule(traffic, true, policy.Deny, policy.AnyPort)}
				}
				p.apply()
				for i, node := range uplinks {
					for _, port := range []uint16{80, nodePort} {
						if port == nodePort && traffic == policy.Local {
							continue
						}
						source++
						from, to := netip.AddrPortFrom(worlds[i], source), netip.AddrPortFrom(node, port)
						for _, flags := range []uint8{lab.ACK, lab.SYN | lab.ACK} {
							packet := lab.Packet{Src: worlds[i], Dst: node, Proto: 6, Payload: lab.TCP(from, to, flags, nil)}
							fatal.If(t, p.World.Do(func() error { return sendRaw(packet.Bytes(), node) }))
						}
						c, err := p.World.DialFrom("tcp", from.String(), to.String(), map[bool]time.Duration{true: lab.Patience, false: lab.Limit}[closed])
						if err == nil {
							fatal.If(t, c.Close())
						}
						diff.Equal(t, closed, err != nil, traffic, "closed", closed, "from", from, "to", to)
					}
				}
			}
		}
	})
}

// sendRaw sends an IP packet as it is.
func sendRaw(packet []byte, to netip.Addr) error {
	domain, at := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Addr: to.As16()})
	if to.Is4() {
		domain, at = unix.AF_INET, &unix.SockaddrInet4{Addr: to.As4()}
	}
	fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Sendto(fd, packet, 0, at)
}
