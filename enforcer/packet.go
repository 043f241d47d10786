package enforcer

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
)

const (
	tcpProtocol = 6
	udpProtocol = 17
	// hops is the hop limit that hosts send with.
	hops = 64
	// rst is the flag RST of TCP.
	rst = 1 << 2
)

// queryPacket returns a query for the addresses of a name in UDP in IP, with its
// checksums (RFC 768, RFC 1035).
func queryPacket(from, to netip.AddrPort, name string) []byte {
	question := []byte{0, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0} // any ID, recursion desired, one question
	for label := range strings.SplitSeq(strings.TrimSuffix(name, "."), ".") {
		question = append(append(question, byte(len(label))), label...)
	}
	question = append(question, 0, 0, 1, 0, 1) // the root; A, IN
	udp := binary.BigEndian.AppendUint16(ports(from, to), uint16(8+len(question)))
	udp = append(append(udp, 0, 0), question...)
	sum := transportSum(from.Addr(), to.Addr(), udpProtocol, udp)
	if sum == 0 {
		sum = 0xffff // zero says that there is none
	}
	binary.BigEndian.PutUint16(udp[6:], sum)
	return ipPacket(from.Addr(), to.Addr(), udpProtocol, udp)
}

// resetPacket returns a segment with RST in IP (RFC 9293), whose sequence number is 0.
func resetPacket(from, to netip.AddrPort) []byte {
	tcp := append(ports(from, to), 0, 0, 0, 0, 0, 0, 0, 0, 5<<4, rst, 0, 0, 0, 0, 0, 0)
	binary.BigEndian.PutUint16(tcp[16:], transportSum(from.Addr(), to.Addr(), tcpProtocol, tcp))
	return ipPacket(from.Addr(), to.Addr(), tcpProtocol, tcp)
}

func ports(from, to netip.AddrPort) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, from.Port()), to.Port())
}

// transportSum is the checksum of a segment or datagram with its pseudo header.
func transportSum(from, to netip.Addr, protocol byte, b []byte) uint16 {
	pseudo := append(slices.Concat(from.AsSlice(), to.AsSlice()), 0, protocol)
	return checksum(append(binary.BigEndian.AppendUint16(pseudo, uint16(len(b))), b...))
}

// ipPacket puts a payload behind a header (RFC 791, RFC 8200).
func ipPacket(from, to netip.Addr, protocol byte, payload []byte) []byte {
	be, length := binary.BigEndian, uint16(len(payload))
	if from.Is6() {
		head := append(be.AppendUint16([]byte{0x60, 0, 0, 0}, length), protocol, hops)
		return slices.Concat(head, from.AsSlice(), to.AsSlice(), payload)
	}
	head := append(be.AppendUint16([]byte{0x45, 0}, 20+length), 0, 0, 0x40, 0, hops, protocol, 0, 0) // not to be fragmented
	head = slices.Concat(head, from.AsSlice(), to.AsSlice())
	be.PutUint16(head[10:], checksum(head))
	return append(head, payload...)
}

// checksum is the Internet's (RFC 1071).
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	if len(b)%2 == 1 {
		sum += uint32(b[len(b)-1]) << 8
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
