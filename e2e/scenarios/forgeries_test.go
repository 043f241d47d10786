package scenarios

import (
	"bytes"
	"net/netip"

	"github.com/namegate/namegate/e2e/lab"
)

// way is where a forged packet goes from and to, and the token that it carries. The
// number makes its connection and its fragments no other's.
type way struct {
	src, dst netip.Addr
	no       uint32
}

func (w way) token() []byte { return lab.Token(w.no) }

func (w way) from(port uint16) netip.AddrPort { return netip.AddrPortFrom(w.src, port) }
func (w way) to(port uint16) netip.AddrPort   { return netip.AddrPortFrom(w.dst, port) }

// forgedTo is the port that forgeries are for.
const forgedTo = 80

// own is the default source port of a forgery.
func (w way) own() uint16 { return 1024 + uint16(w.no) }

func (w way) tcp(flags byte) []byte {
	return lab.TCP(w.from(w.own()), w.to(forgedTo), flags, bytes.Repeat(w.token(), 3))
}
func (w way) udp() []byte {
	return lab.UDP(w.from(w.own()), w.to(forgedTo), bytes.Repeat(w.token(), 3))
}

// packet carries a payload as it is.
func (w way) packet(proto byte, payload []byte) [][]byte {
	return [][]byte{lab.Packet{Src: w.src, Dst: w.dst, Proto: proto, Payload: payload}.Bytes()}
}

// fragments carries parts of one payload, each from a byte to another, in order.
func (w way) fragments(proto byte, payload []byte, parts ...[2]int) [][]byte {
	var out [][]byte
	for _, p := range parts {
		part, more := payload[p[0]:min(p[1], len(payload))], p[1] < len(payload)
		if w.src.Is6() {
			out = append(out, w.packet(44, lab.Fragment6(proto, p[0], more, w.no, part))...)
			continue
		}
		out = append(out, lab.Packet{Src: w.src, Dst: w.dst, Proto: proto, Payload: part, ID: uint16(w.no), Offset: p[0], More: more}.Bytes())
	}
	return out
}

// options carries a SYN with options of IPv4.
func (w way) options(options ...byte) [][]byte {
	for len(options)%4 != 0 {
		options = append(options, 0)
	}
	return [][]byte{lab.Packet{Src: w.src, Dst: w.dst, Proto: 6, Payload: w.tcp(lab.SYN), Options: options}.Bytes()}
}

// route is a source route of IPv4 by one address.
func route(kind byte, via netip.Addr) []byte { return append([]byte{kind, 7, 4}, via.AsSlice()...) }

// extended carries a SYN behind one extension header of IPv6.
func (w way) extended(header byte, body ...byte) [][]byte {
	return w.packet(header, lab.Extension(6, body, w.tcp(lab.SYN)))
}

// routing is a routing header's body: its type, the segments left and one address.
func routing(typ, left byte, via netip.Addr) []byte {
	b := []byte{typ, left, 0, 0, 0, 0}
	if !via.Is6() {
		return b
	}
	return append(b, via.AsSlice()...)
}

// quoting is the quoted packet of an ICMP error: a packet of the other direction that was
// never sent.
func (w way) quoting() []byte {
	back := way{w.dst, w.src, w.no}
	return append(make([]byte, 4), back.packet(17, lab.UDP(back.from(forgedTo), back.to(w.own()), w.token()))[0]...)
}

// forgery is a kind of packet, and where it arrives: from an unselected pod (free; not
// asserted if it is "no"), from a selected one at an address that is open on every port
// (open), and at one that is open on TCP port 80 alone (web). Nowhere else.
type forgery struct {
	name            string
	make            func(w way) [][]byte
	free, open, web bool
}

// strangeTCP are segments of no connection.
func strangeTCP() []forgery {
	// Conntrack takes an ACK for a connection from before it looked.
	out := []forgery{{"bare ACK", func(w way) [][]byte { return w.packet(6, w.tcp(lab.ACK)) }, true, true, true}}
	for name, flags := range map[string]byte{"FIN": lab.FIN, "RST": lab.RST, "null": 0, "xmas": lab.FIN | lab.PSH | lab.URG, "SYN+ACK": lab.SYN | lab.ACK, "SYN+FIN": lab.SYN | lab.FIN} {
		out = append(out, forgery{"bare " + name, func(w way) [][]byte { return w.packet(6, w.tcp(flags)) }, true, false, false})
	}
	return append(out, forgery{"SYN with a wrong checksum", func(w way) [][]byte {
		b := w.tcp(lab.SYN)
		b[16]++
		return w.packet(6, b)
	}, true, false, false})
}

// anyForgeries are the forgeries of both families.
func anyForgeries() []forgery {
	out := []forgery{
		{"SYN", func(w way) [][]byte { return w.packet(6, w.tcp(lab.SYN)) }, true, true, true},
		{"UDP", func(w way) [][]byte { return w.packet(17, w.udp()) }, true, true, false},
		{"UDP in two fragments", func(w way) [][]byte { return w.fragments(17, w.udp(), [2]int{0, 24}, [2]int{24, 99}) }, true, true, false},
		{"TCP in two fragments", func(w way) [][]byte { return w.fragments(6, w.tcp(lab.SYN), [2]int{0, 40}, [2]int{40, 99}) }, true, true, true},
		{"fragments from last to first", func(w way) [][]byte { return w.fragments(6, w.tcp(lab.SYN), [2]int{40, 99}, [2]int{0, 40}) }, true, true, true},
		{"overlapping fragments", func(w way) [][]byte {
			return w.fragments(6, w.tcp(lab.SYN), [2]int{0, 40}, [2]int{24, 48}, [2]int{40, 99})
		}, false, false, false},
		{"later fragments alone", func(w way) [][]byte { return w.fragments(6, w.tcp(lab.SYN), [2]int{24, 48}, [2]int{48, 99}) }, false, false, false},
		{"UDP from port 53", func(w way) [][]byte { return w.packet(17, lab.UDP(w.from(53), w.to(forgedTo), w.token())) }, true, true, false},
		{"TCP from port 53", func(w way) [][]byte { return w.packet(6, lab.TCP(w.from(53), w.to(forgedTo), lab.SYN, w.token())) }, true, true, true},
		{"SCTP", func(w way) [][]byte { return w.packet(132, lab.SCTPInit(w.own(), forgedTo, w.token())) }, true, true, false},
		{"a packet in a packet", func(w way) [][]byte {
			if w.src.Is6() {
				return w.packet(41, w.packet(17, w.udp())[0])
			}
			return w.packet(4, w.packet(17, w.udp())[0])
		}, true, true, false},
	}
	for name, proto := range map[string]byte{"GRE": 47, "ESP": 50, "protocol 253": 253} {
		head := []byte{0, 0, 8, 0, 0, 0, 0, 1}
		out = append(out, forgery{name, func(w way) [][]byte { return w.packet(proto, append(bytes.Clone(head), w.token()...)) }, true, true, false})
	}
	return append(out, strangeTCP()...)
}

// forgeries4 are IPv4's.
func forgeries4() []forgery {
	via := netip.MustParseAddr("198.51.100.3")
	return append(anyForgeries(),
		forgery{"TCP with a tiny first fragment", func(w way) [][]byte { return w.fragments(6, w.tcp(lab.SYN), [2]int{0, 8}, [2]int{8, 99}) }, true, true, true},
		forgery{"loose source route", func(w way) [][]byte { return w.options(route(131, via)...) }, false, false, false},
		forgery{"strict source route", func(w way) [][]byte { return w.options(route(137, via)...) }, false, false, false},
		forgery{"record route", func(w way) [][]byte { return w.options(7, 7, 4, 0, 0, 0, 0) }, true, true, true},
		forgery{"timestamps", func(w way) [][]byte { return w.options(68, 8, 5, 0, 0, 0, 0, 0) }, true, true, true},
		forgery{"router alert", func(w way) [][]byte { return w.options(148, 4, 0, 0) }, true, true, true},
		forgery{"echo request", func(w way) [][]byte {
			return w.packet(1, lab.ICMP(w.src, w.dst, 8, 0, append([]byte{1, 2, 0, 1}, w.token()...)))
		}, true, true, false},
		forgery{"ICMP error of a made-up connection", func(w way) [][]byte { return w.packet(1, lab.ICMP(w.src, w.dst, 3, 3, w.quoting())) }, true, false, false},
		forgery{"ICMP redirect of a made-up connection", func(w way) [][]byte { return w.packet(1, lab.ICMP(w.src, w.dst, 5, 1, w.quoting())) }, true, false, false},
		forgery{"AH", func(w way) [][]byte { return w.packet(51, append(make([]byte, 12), w.token()...)) }, true, true, false},
		forgery{"IGMP", func(w way) [][]byte { return w.packet(2, append(make([]byte, 8), w.token()...)) }, true, true, false},
	)
}

// forgeries6 are IPv6's.
func forgeries6() []forgery {
	node := netip.MustParseAddr("fd00:77::1")
	return append(anyForgeries(),
		// The kernel wants all headers in the first one (RFC 7112).
		forgery{"TCP with a tiny first fragment", func(w way) [][]byte { return w.fragments(6, w.tcp(lab.SYN), [2]int{0, 8}, [2]int{8, 99}) }, false, false, false},
		forgery{"hop-by-hop options", func(w way) [][]byte { return w.extended(0, 1, 4, 0, 0, 0, 0) }, true, true, true},
		forgery{"hop-by-hop router alert", func(w way) [][]byte { return w.extended(0, 5, 2, 0, 0, 1, 0) }, true, true, true},
		forgery{"destination options", func(w way) [][]byte { return w.extended(60, 1, 4, 0, 0, 0, 0) }, true, true, true},
		forgery{"a home address in destination options", func(w way) [][]byte {
			return w.extended(60, append([]byte{1, 2, 0, 0, 201, 16}, node.AsSlice()...)...)
		}, true, true, true},
		forgery{"routing header type 0", func(w way) [][]byte { return w.extended(43, routing(0, 1, node)...) }, true, true, true},
		forgery{"routing header type 2", func(w way) [][]byte { return w.extended(43, routing(2, 1, node)...) }, true, true, true},
		forgery{"routing header type 4", func(w way) [][]byte { return w.extended(43, routing(4, 0, node)...) }, true, true, true},
		forgery{"routing header at its end", func(w way) [][]byte { return w.extended(43, routing(0, 0, netip.Addr{})...) }, true, true, true},
		forgery{"an atomic fragment", func(w way) [][]byte { return w.packet(44, lab.Fragment6(6, 0, false, 7, w.tcp(lab.SYN))) }, true, true, true},
		forgery{"fragments, the ports in the second", func(w way) [][]byte {
			return w.fragments(60, lab.Extension(6, []byte{1, 4, 0, 0, 0, 0}, w.tcp(lab.SYN)), [2]int{0, 8}, [2]int{8, 120})
		}, false, false, false},
		forgery{"many extension headers", func(w way) [][]byte {
			payload, next := w.tcp(lab.SYN), byte(6)
			for range 8 {
				payload, next = lab.Extension(next, []byte{1, 4, 0, 0, 0, 0}, payload), 60
			}
			return w.packet(60, payload)
		}, true, true, true},
		forgery{"no next header", func(w way) [][]byte { return w.packet(59, w.token()) }, true, false, false},
		forgery{"echo request", func(w way) [][]byte {
			return w.packet(58, lab.ICMP(w.src, w.dst, 128, 0, append([]byte{1, 2, 0, 1}, w.token()...)))
		}, true, true, false},
		forgery{"ICMPv6 error of a made-up connection", func(w way) [][]byte { return w.packet(58, lab.ICMP(w.src, w.dst, 1, 4, w.quoting())) }, true, false, false},
		forgery{"packet too big of a made-up connection", func(w way) [][]byte { return w.packet(58, lab.ICMP(w.src, w.dst, 2, 0, w.quoting())) }, true, false, false},
	)
}
