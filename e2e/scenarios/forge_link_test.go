package scenarios

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// claim is a pod's announcement on its link that an address is at the pod's own hardware
// address.
type claim struct {
	name string
	typ  uint16 // of the frame
	to   net.HardwareAddr
	body func(hw net.HardwareAddr, token []byte) []byte
}

var everyone = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// arpClaims are the ways to claim an IPv4 address. Tokens are in the padding.
func arpClaims(addr, victim netip.Addr, at net.HardwareAddr) []claim {
	arp := func(name string, op byte, to net.HardwareAddr, asked netip.Addr) claim {
		return claim{"ARP " + name + " for " + addr.String(), unix.ETH_P_ARP, to, func(hw net.HardwareAddr, token []byte) []byte {
			return append(lab.ARP(op, hw, addr, to, asked), token...)
		}}
	}
	return []claim{
		arp("announcement", 1, everyone, addr), arp("gratuitous reply", 2, everyone, addr),
		arp("reply", 2, at, victim), arp("request", 1, at, victim),
	}
}

// ndClaims are the ways to claim an IPv6 address. Tokens are in an option of an unknown
// type.
func ndClaims(own, addr, victim netip.Addr, at net.HardwareAddr) []claim {
	nd := func(name string, typ byte, src, dst, target netip.Addr, flags, option byte, to net.HardwareAddr) claim {
		return claim{"neighbour " + name + " for " + addr.String(), unix.ETH_P_IPV6, to, func(hw net.HardwareAddr, token []byte) []byte {
			rest := append(append([]byte{flags, 0, 0, 0}, target.AsSlice()...), append([]byte{option, 1}, hw...)...)
			rest = append(append(rest, 253, 3), append(make([]byte, 6), token...)...)
			return lab.Packet{Src: src, Dst: dst, Proto: 58, Hops: 255, Payload: lab.ICMP(src, dst, typ, 0, rest)}.Bytes()
		}}
	}
	const override, solicited, source, target = 0x20, 0x40, 1, 2
	all := netip.MustParseAddr("ff02::1")
	return []claim{
		nd("advertisement", 136, own, victim, addr, override|solicited, target, at),
		nd("advertisement to all", 136, own, all, addr, override, target, net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}),
		nd("advertisement from it", 136, addr, victim, addr, override|solicited, target, at),
		nd("advertisement from a link-local address", 136, netip.MustParseAddr("fe80::66"), victim, addr, override|solicited, target, at),
		nd("solicitation from it", 135, addr, victim, victim, 0, source, at),
	}
}

// TestClaimedAddresses has a pod claim another's address on its bridge: the claim reaches
// neither the neighbour nor the node. Claims of its own address arrive, and so does any
// claim of an unselected pod.
func TestClaimedAddresses(t *testing.T) {
	staged(t, onBridged, newForgeStage, func(t *testing.T, f *forgeStage) {
		a, b, free := f.Pod("a"), f.Pod("b"), f.Pod("free")
		at := f.cards["b"].HW
		gateway4, gateway6 := netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("fd00:1::1")
		local6 := f.linkLocal(f.Node, "br0")
		var all []sent
		say := func(pod *lab.Pod, claims []claim, want bool) {
			t.Helper()
			for _, c := range claims {
				w := f.way(pod.Addr4, b.Addr4)
				card := f.cards[map[*lab.Pod]string{a: "a", free: "free"}[pod]]
				fatal.If(t, card.Send(card.Frame(c.to, c.typ, c.body(card.HW, w.token()))))
				all = append(all, sent{fmt.Sprintf("%s from %s", c.name, pod.Addr4), w, want})
			}
		}
		say(a, arpClaims(a.Addr4, b.Addr4, at), true)
		say(a, ndClaims(a.Addr6, a.Addr6, b.Addr6, at)[:3], true)
		for _, addr := range []netip.Addr{gateway4, free.Addr4, b.Addr4, netip.MustParseAddr("10.1.0.99")} {
			say(a, arpClaims(addr, b.Addr4, at), false)
		}
		for _, addr := range []netip.Addr{gateway6, free.Addr6, b.Addr6, local6, netip.MustParseAddr("fd00:1::99")} {
			say(a, ndClaims(a.Addr6, addr, b.Addr6, at), false)
		}
		f.judge(all)
		for _, c := range []struct {
			host *lab.Host
			dev  string
			addr netip.Addr
			want net.HardwareAddr
		}{
			{b.Host, "eth0", gateway4, f.hop("b", gateway4)}, {b.Host, "eth0", gateway6, f.hop("b", gateway6)},
			{f.Node, "br0", b.Addr4, at}, {f.Node, "br0", b.Addr6, at},
		} {
			if got, err := c.host.Neighbour(c.dev, c.addr); err != nil || got.String() != c.want.String() {
				t.Errorf("%s takes %s to be at %s, not at %s: %v", c.host.Name, c.addr, got, c.want, err)
			}
		}
		// The unselected pod is believed: the claims are as they must be to harm.
		all = nil
		say(free, arpClaims(gateway4, b.Addr4, at), true)
		say(free, ndClaims(free.Addr6, gateway6, b.Addr6, at), true)
		f.judge(all)
		for _, addr := range []netip.Addr{gateway4, gateway6} {
			if got, err := b.Neighbour("eth0", addr); err != nil || got.String() != f.cards["free"].HW.String() {
				t.Errorf("the neighbour does not believe the unselected pod that it is %s (%s, %v): the test proves little", addr, got, err)
			}
		}
	})
}

// TestClaimedAddressesOnASeparateLink has a routed pod tell the node that its
// neighbour's address is at its own: what goes to the neighbour goes there still.
func TestClaimedAddressesOnASeparateLink(t *testing.T) {
	staged(t, onRouted, newForgeStage, func(t *testing.T, f *forgeStage) {
		a, b := f.Pod("a"), f.Pod("b")
		node, err := f.Node.Hardware(a.Iface)
		fatal.If(t, err)
		claims := append(arpClaims(b.Addr4, netip.MustParseAddr("169.254.1.1"), node), ndClaims(a.Addr6, b.Addr6, netip.MustParseAddr("fe80::77"), node)...)
		own, err := a.Sniff("eth0")
		fatal.If(t, err)
		defer own.Close()
		card := f.cards["a"]
		for _, c := range claims {
			fatal.If(t, card.Send(card.Frame(c.to, c.typ, c.body(card.HW, f.way(a.Addr4, b.Addr4).token()))))
		}
		for _, to := range []netip.Addr{b.Addr4, b.Addr6} {
			for _, from := range []*lab.Host{f.Node, f.World, f.Pod("free").Host} {
				diff.Equal(t, lab.Answered, from.ProbeFor("icmp", netip.AddrPortFrom(to, 0), lab.Limit), from.Name, "to", to)
			}
			diff.Equal(t, 0, own.Saw(to), "packets for", to, "that came to the pod that claims it")
		}
	})
}

// linkLocal returns a link-local address of an interface.
func (f *forgeStage) linkLocal(h *lab.Host, dev string) netip.Addr {
	f.t.Helper()
	out := run(f.t, h, "ip", "-6", "-o", "addr", "show", "dev", dev, "scope", "link")
	all := linkLocals(out)
	if len(all) == 0 {
		f.t.Fatalf("%s has no link-local address: %s", dev, out)
	}
	return netip.MustParseAddr(all[0])
}

// TestForgedFrames sends frames from pod to pod on a bridge that the IP layer does not
// see.
func TestForgedFrames(t *testing.T) {
	staged(t, onBridged, newForgeStage, func(t *testing.T, f *forgeStage) {
		frames := map[string]func(w way) (typ uint16, body []byte){
			"an unknown type": func(w way) (uint16, []byte) { return 0x88b5, w.token() },
			"a tagged packet": func(w way) (uint16, []byte) { return 0x8100, append([]byte{0, 0, 8, 0}, w.packet(17, w.udp())[0]...) },
			"a packet with a priority tag": func(w way) (uint16, []byte) {
				return 0x8100, append([]byte{0xe0, 0, 8, 0}, w.packet(17, w.udp())[0]...)
			},
			"a twice tagged packet": func(w way) (uint16, []byte) {
				return 0x88a8, append([]byte{0, 0, 0x81, 0, 0, 0, 8, 0}, w.packet(17, w.udp())[0]...)
			},
			"a packet in PPPoE": func(w way) (uint16, []byte) {
				return 0x8864, append([]byte{0x11, 0, 0, 1, 0, 60, 0, 0x21}, w.packet(17, w.udp())[0]...)
			},
			"a packet in MPLS": func(w way) (uint16, []byte) { return 0x8847, append([]byte{0, 1, 1, 64}, w.packet(17, w.udp())[0]...) },
			"a packet in SNAP": func(w way) (uint16, []byte) {
				p := w.packet(17, w.udp())[0]
				return uint16(8 + len(p)), append([]byte{0xaa, 0xaa, 3, 0, 0, 0, 8, 0}, p...)
			},
			"IPv4 that says it is IPv6": func(w way) (uint16, []byte) { return unix.ETH_P_IPV6, w.packet(17, w.udp())[0] },
			"RARP": func(w way) (uint16, []byte) {
				return 0x8035, append(lab.ARP(3, everyone, w.src, everyone, w.dst), w.token()...)
			},
		}
		// Frames that the kernel's bridge itself does not forward.
		never := map[string]bool{"IPv4 that says it is IPv6": true}
		var all []sent
		for name, make := range frames {
			for _, pod := range []string{"a", "free"} {
				if pod == "free" && never[name] {
					continue
				}
				w := f.way(f.Pod(pod).Addr4, f.Pod("b").Addr4)
				typ, body := make(w)
				fatal.If(t, f.cards[pod].Send(f.cards[pod].Frame(f.cards["b"].HW, typ, body)))
				all = append(all, sent{name + " from pod " + pod, w, pod == "free"})
			}
		}
		f.judge(all)
	})
}

// TestForgedToMany sends to all: no neighbour receives a selected pod's packets, and
// nothing leaves the node.
func TestForgedToMany(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, kind nodeKind) {
		f := newForgeStage(t, kind)
		var all []sent
		for _, text := range []string{"255.255.255.255", "10.1.0.255", "224.0.0.1", "224.0.0.251", "239.1.2.3", "ff02::1", "ff02::fb", "ff05::2", "ff0e::1234"} {
			to := netip.MustParseAddr(text)
			hw := everyone
			if to.Is6() {
				last := to.As16()
				hw = append(net.HardwareAddr{0x33, 0x33}, last[12:]...)
			} else if to.IsMulticast() {
				last := to.As4()
				hw = net.HardwareAddr{1, 0, 0x5e, last[1] & 0x7f, last[2], last[3]}
			}
			for _, pod := range []string{"a", "free"} {
				p := f.Pod(pod)
				src := p.Addr4
				if to.Is6() {
					src = p.Addr6
				}
				for _, kind := range []string{"UDP", "echo request"} {
					w := f.way(src, to)
					packet := w.packet(17, w.udp())[0]
					if kind != "UDP" {
						for _, forged := range append(forgeries4(), forgeries6()...) {
							if forged.name == kind {
								packet = forged.make(w)[0]
							}
						}
					}
					fatal.If(t, f.cards[pod].SendIP(hw, packet))
					if want := pod == "free" && f.Network == lab.Bridged; want || pod == "a" {
						all = append(all, sent{fmt.Sprintf("%s from pod %s to %s", kind, pod, to), w, want})
					}
				}
			}
		}
		f.judge(all)
	})
}

// discovery carries an ICMPv6 message of neighbour or listener discovery, with the token in an option
// of an unknown type.
func (w way) discovery(typ, hops byte) [][]byte {
	rest := append(append(make([]byte, 20), 253, 3, 0, 0, 0, 0, 0, 0), w.token()...)
	return [][]byte{lab.Packet{Src: w.src, Dst: w.dst, Proto: unix.IPPROTO_ICMPV6, Hops: hops, Payload: lab.ICMP(w.src, w.dst, typ, 0, rest)}.Bytes()}
}

// TestDiscoveryIsNoWayOut sends what looks like neighbour and listener discovery,
// which the home check and the verdict must let pass on a link, to the world.
func TestDiscoveryIsNoWayOut(t *testing.T) {
	staged(t, onEach, newForgeStage, func(t *testing.T, f *forgeStage) {
		var all []sent
		send := func(pod string, from netip.Addr) {
			t.Helper()
			for _, hops := range []byte{255, 64, 2} {
				for typ := byte(128); typ <= 143; typ++ {
					w := f.way(from, netip.MustParseAddr("2001:db8:66:1::1"))
					f.send(pod, w, w.discovery(typ, hops))
					all = append(all, sent{fmt.Sprintf("ICMPv6 type %d from %s with hop limit %d, sent by pod %s", typ, from, hops, pod), w, pod == "free"})
				}
			}
		}
		send("a", f.Pod("a").Addr6)
		send("a", netip.MustParseAddr("2001:db8:66::1"))
		send("free", f.Pod("free").Addr6)
		f.judge(all)
		f.expect("a", "tcp", "[2001:db8:1::1]:80", lab.Answered)
	})
}

// TestNoRouterAmongPods lets pods send packets of routers and queriers to their bridge's
// neighbours: a selected pod's do not arrive, another's do.
func TestNoRouterAmongPods(t *testing.T) {
	staged(t, onBridged, newForgeStage, func(t *testing.T, f *forgeStage) {
		var all []sent
		for _, pod := range []string{"a", "free"} {
			for _, typ := range []byte{130, 134, 137} {
				for _, from := range []netip.Addr{f.Pod(pod).Addr6, netip.MustParseAddr("fe80::1")} {
					w := f.way(from, f.Pod("b").Addr6)
					f.send(pod, w, w.discovery(typ, 255))
					all = append(all, sent{fmt.Sprintf("ICMPv6 type %d from %s, sent by pod %s", typ, from, pod), w, pod == "free"})
				}
			}
		}
		f.judge(all)
	})
}
