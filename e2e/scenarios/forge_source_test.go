package scenarios

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/diff"
)

// TestForgedConnection has a pod send into its neighbour's open connections.
func TestForgedConnection(t *testing.T) {
	staged(t, onEach, newForgeStage, func(t *testing.T, f *forgeStage) {
		var lines []*line
		for _, to := range []string{"198.51.100.3", "2001:db8:1::3"} {
			lines = append(lines, f.line("a", "udp", netip.MustParseAddr(to)), f.line("a", "tcp", netip.MustParseAddr(to)))
		}
		var all []sent
		for i, l := range lines {
			src, dst := netip.MustParseAddrPort(l.local.String()), netip.MustParseAddrPort(l.remote.String())
			make := map[string]func(w way) [][]byte{
				"UDP": func(w way) [][]byte { return w.packet(17, lab.UDP(src, dst, w.token())) },
			}
			if i%2 == 1 {
				make = map[string]func(w way) [][]byte{}
				for name, flags := range map[string]byte{"data": lab.ACK | lab.PSH, "RST": lab.RST, "FIN": lab.FIN | lab.ACK, "SYN": lab.SYN} {
					make[name] = func(w way) [][]byte { return w.packet(6, lab.TCP(src, dst, flags, w.token())) }
				}
			}
			for name, packets := range make {
				w := f.way(src.Addr(), dst.Addr())
				f.send("b", w, packets(w))
				all = append(all, sent{fmt.Sprintf("%s in the neighbour's connection to %s", name, dst), w, false})
				if name == "UDP" {
					w = f.way(src.Addr(), dst.Addr())
					f.send("a", w, packets(w))
					all = append(all, sent{fmt.Sprintf("%s in the pod's own connection to %s", name, dst), w, true})
				}
			}
		}
		f.judge(all)
		f.goesOn("after all of it", lines...)
	})
}

// TestForgedErrors has a pod send ICMP errors about its neighbour's connections, to
// either end, and about its own, which arrive.
func TestForgedErrors(t *testing.T) {
	staged(t, onEach, newForgeStage, func(t *testing.T, f *forgeStage) {
		var all []sent
		var lines []*line
		for _, to := range []string{"198.51.100.3", "2001:db8:1::3"} {
			for _, network := range []string{"udp", "tcp"} {
				l := f.line("a", network, netip.MustParseAddr(to))
				lines = append(lines, l)
				pod, server := netip.MustParseAddrPort(l.local.String()), netip.MustParseAddrPort(l.remote.String())
				for _, e := range []struct {
					what, by string
					from, to netip.AddrPort // of the quoted packet
					at       netip.Addr
					want     bool
				}{
					{"the pod's own error to the server", "a", server, pod, server.Addr(), true},
					{"an error of the neighbour's to the server", "b", server, pod, server.Addr(), false},
					{"an error of the neighbour's to the server, as if by a router", "b", pod, server, server.Addr(), false},
				} {
					src := f.Pod(e.by).Addr4
					if server.Addr().Is6() {
						src = f.Pod(e.by).Addr6
					}
					w := f.way(src, e.at)
					quoted := lab.Packet{Src: e.from.Addr(), Dst: e.to.Addr(), Proto: 17, Payload: lab.UDP(e.from, e.to, w.token())}
					if network == "tcp" {
						quoted.Proto, quoted.Payload = 6, lab.TCP(e.from, e.to, lab.ACK, w.token())
					}
					proto, typ, code := byte(1), byte(3), byte(3)
					if src.Is6() {
						proto, typ, code = 58, 1, 4
					}
					f.send(e.by, w, w.packet(proto, lab.ICMP(w.src, w.dst, typ, code, append(make([]byte, 4), quoted.Bytes()...))))
					all = append(all, sent{fmt.Sprintf("%s, about %s", e.what, l.name), w, e.want})
				}
			}
		}
		f.judge(all)
		f.goesOn("after all of it", lines[1], lines[3])

		// About what others open to the pod it may send errors too, behind a Service
		// as well.
		for program, rule := range map[string][2]string{"iptables": {"192.168.77.1", "10.1.0.5:9"}, "ip6tables": {"fd00:77::1", "[fd00:1::5]:9"}} {
			run(t, f.Node, program, "-t", "nat", "-A", "PREROUTING", "-d", rule[0], "-p", "udp", "--dport", "7777", "-j", "DNAT", "--to", rule[1])
		}
		for _, to := range []string{"10.1.0.5:9", "[fd00:1::5]:9", "192.168.77.1:7777", "[fd00:77::1]:7777"} {
			diff.Equal(t, lab.Refused, f.World.ProbeFor("udp", netip.MustParseAddrPort(to), lab.Limit), "a closed port of the pod, dialled from outside as", to)
		}
	})
}

// TestSourcesOfOthers sends with addresses that are not the pod's.
func TestSourcesOfOthers(t *testing.T) {
	staged(t, onEach, newForgeStage, func(t *testing.T, f *forgeStage) {
		kinds := map[string]func(w way) [][]byte{
			"SYN":              func(w way) [][]byte { return w.packet(6, w.tcp(lab.SYN)) },
			"bare RST":         func(w way) [][]byte { return w.packet(6, w.tcp(lab.RST)) },
			"UDP":              func(w way) [][]byte { return w.packet(17, w.udp()) },
			"UDP from port 53": func(w way) [][]byte { return w.packet(17, lab.UDP(w.from(53), w.to(w.own()), w.token())) },
			"fragments":        func(w way) [][]byte { return w.fragments(17, w.udp(), [2]int{0, 24}, [2]int{24, 99}) },
			"protocol 253":     func(w way) [][]byte { return w.packet(253, w.token()) },
		}
		// Those that the kernel forwards from an unselected pod.
		forwarded := map[string]bool{"10.1.0.99": true, "203.0.113.5": true, "192.0.2.53": true, "fd00:1::99": true, "2001:db8:5::5": true, "2001:db8::53": true, "2002:a01:5::1": true}
		sources := []string{
			f.Pod("b").Addr4.String(), "192.168.77.1", "10.1.0.1", "169.254.1.1", "169.254.20.53", "127.0.0.1", "0.0.0.0", "255.255.255.255", "224.0.0.1",
			f.Pod("b").Addr6.String(), "fd00:77::1", "fd00:1::1", "fd5c:7a1e:93b4::53", "::1", "::", "fe80::66", "fe80::77", "ff02::1", "::ffff:10.1.0.5", "::10.1.0.5",
		}
		for source := range forwarded {
			sources = append(sources, source)
		}
		var all []sent
		for _, source := range sources {
			src := netip.MustParseAddr(source)
			targets := []string{"198.51.100.66", "198.51.100.3", f.Pod("b").Addr4.String()}
			if src.Is6() {
				targets = []string{"2001:db8:1::66", "2001:db8:1::3", f.Pod("b").Addr6.String()}
			}
			for name, make := range kinds {
				for _, to := range targets {
					for _, pod := range []string{"a", "free"} {
						if pod == "free" && !forwarded[source] {
							continue
						}
						w := f.way(src, netip.MustParseAddr(to))
						f.send(pod, w, make(w))
						all = append(all, sent{fmt.Sprintf("%s from %s, sent by pod %s, to %s", name, src, pod, to), w, pod == "free"})
					}
				}
			}
		}
		f.judge(all)
		f.expect("a", "tcp", "198.51.100.3:80", lab.Answered)
		f.expect("a", "tcp", "[2001:db8:1::3]:80", lab.Answered)
	})
}
