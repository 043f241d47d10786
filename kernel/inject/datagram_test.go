package inject_test

import (
	"encoding/binary"
	"net/netip"
)

// datagram returns UDP in IP, IPv4 without a checksum of UDP.
func datagram(from, to netip.AddrPort, text string) []byte {
	be := binary.BigEndian
	length := uint16(8 + len(text))
	udp := be.AppendUint16(be.AppendUint16(be.AppendUint16(nil, from.Port()), to.Port()), length)
	udp = append(append(udp, 0, 0), text...)
	src, dst := from.Addr().AsSlice(), to.Addr().AsSlice()
	if from.Addr().Is4() {
		head := append(be.AppendUint16([]byte{0x45, 0}, 20+length), 0, 0, 0, 0, 64, 17, 0, 0)
		head = append(append(head, src...), dst...)
		be.PutUint16(head[10:], ^sum(head))
		return append(head, udp...)
	}
	be.PutUint16(udp[6:], ^sum(append(be.AppendUint16(append(append([]byte{}, src...), dst...), length+17), udp...)))
	head := append(be.AppendUint16([]byte{0x60, 0, 0, 0}, length), 17, 64)
	return append(append(append(head, src...), dst...), udp...)
}

// sum adds in ones' complement.
func sum(b []byte) uint16 {
	var s uint32
	if len(b)%2 == 1 {
		b = append(b[:len(b):len(b)], 0)
	}
	for ; len(b) > 0; b = b[2:] {
		if s += uint32(binary.BigEndian.Uint16(b)); s > 0xffff {
			s -= 0xffff
		}
	}
	return uint16(s)
}
