package lab

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"
)

// Packet is an IP packet of the writer's own making.
type Packet struct {
	Src, Dst netip.Addr
	// Proto is the number of what Payload begins with; in IPv6 that of the first
	// extension header, if there is one.
	Proto   byte
	Payload []byte
	// Options are IPv4's, a multiple of four bytes.
	Options []byte
	// ID, Offset (in bytes, a multiple of eight) and More are IPv4's fragment fields.
	ID     uint16
	Offset int
	More   bool
	// Hops are 64 if 0.
	Hops byte
}

// Bytes renders the packet, with the right checksum of the IPv4 header.
func (p Packet) Bytes() []byte {
	if p.Hops == 0 {
		p.Hops = 64
	}
	if p.Src.Is6() {
		b := []byte{0x60, 0, 0, 0, byte(len(p.Payload) >> 8), byte(len(p.Payload)), p.Proto, p.Hops}
		b = append(append(b, p.Src.AsSlice()...), p.Dst.AsSlice()...)
		return append(b, p.Payload...)
	}
	header := 20 + len(p.Options)
	b := []byte{0x40 | byte(header/4), 0}
	b = binary.BigEndian.AppendUint16(b, uint16(header+len(p.Payload)))
	b = binary.BigEndian.AppendUint16(b, p.ID)
	field := uint16(p.Offset / 8)
	if p.More {
		field |= 0x2000
	}
	b = binary.BigEndian.AppendUint16(b, field)
	b = append(b, p.Hops, p.Proto, 0, 0)
	b = append(append(append(b, p.Src.AsSlice()...), p.Dst.AsSlice()...), p.Options...)
	binary.BigEndian.PutUint16(b[10:], checksum(b))
	return append(b, p.Payload...)
}

// TCP flags.
const (
	FIN byte = 1 << iota
	SYN
	RST
	PSH
	ACK
	URG
)

// TCP renders a segment with data.
func TCP(src, dst netip.AddrPort, flags byte, data []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, src.Port())
	b = binary.BigEndian.AppendUint16(b, dst.Port())
	b = append(b, 0, 0, 1, 0, 0, 0, 1, 0, 5<<4, flags, 0xff, 0xff, 0, 0, 0, 0)
	return Summed(6, src.Addr(), dst.Addr(), append(b, data...), 16)
}

// UDP renders a datagram.
func UDP(src, dst netip.AddrPort, data []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, src.Port())
	b = binary.BigEndian.AppendUint16(b, dst.Port())
	b = binary.BigEndian.AppendUint16(b, uint16(8+len(data)))
	return Summed(17, src.Addr(), dst.Addr(), append(append(b, 0, 0), data...), 6)
}

// ICMP renders a message of IPv4's ICMP or, between IPv6 addresses, of ICMPv6; rest
// is what follows the checksum.
func ICMP(src, dst netip.Addr, typ, code byte, rest []byte) []byte {
	b := append([]byte{typ, code, 0, 0}, rest...)
	if src.Is6() {
		return Summed(58, src, dst, b, 2)
	}
	binary.BigEndian.PutUint16(b[2:], checksum(b))
	return b
}

// SCTPInit renders the packet that opens an association (RFC 9260 §3.3.2).
func SCTPInit(sport, dport uint16, data []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, sport)
	b = binary.BigEndian.AppendUint16(b, dport)
	b = append(b, make([]byte, 8)...) // tag 0, checksum
	for len(data)%4 != 0 {
		data = append(data, 0)
	}
	param := append(binary.BigEndian.AppendUint16([]byte{0x80, 0xff}, uint16(4+len(data))), data...)
	b = append(b, 1, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(20+len(param)))
	b = append(b, 0, 0, 0, 1, 0, 0, 0x10, 0, 0, 1, 0, 1, 0, 0, 0, 1)
	b = append(b, param...)
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// Summed writes the checksum of what is carried over IP at a place of b, with the
// pseudo header of the addresses' family.
func Summed(proto byte, src, dst netip.Addr, b []byte, at int) []byte {
	pseudo := append(append(src.AsSlice(), dst.AsSlice()...), 0, 0, byte(len(b)>>8), byte(len(b)), 0, 0, 0, proto)
	binary.BigEndian.PutUint16(b[at:], 0)
	binary.BigEndian.PutUint16(b[at:], checksum(append(pseudo, b...)))
	return b
}

// checksum is the internet's (RFC 1071).
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

// Extension puts an IPv6 extension header before a payload: next is the number of
// what the payload begins with, body what follows the first two bytes of the
// header, padded to a multiple of eight.
func Extension(next byte, body, payload []byte) []byte {
	b := append([]byte{next, 0}, body...)
	for len(b)%8 != 0 {
		b = append(b, 0)
	}
	b[1] = byte(len(b)/8 - 1)
	return append(b, payload...)
}

// Fragment6 puts an IPv6 fragment header before a part of a payload; offset is in
// bytes.
func Fragment6(next byte, offset int, more bool, id uint32, part []byte) []byte {
	field := uint16(offset)
	if more {
		field |= 1
	}
	b := binary.BigEndian.AppendUint16([]byte{next, 0}, field)
	return append(binary.BigEndian.AppendUint32(b, id), part...)
}
