package nft_test

import (
	"encoding/binary"
	"net"
	"net/netip"
)

func net4(to netip.AddrPort) *net.UDPAddr { return net.UDPAddrFromAddrPort(to) }

func ip4(a string) *net.IPAddr { return &net.IPAddr{IP: net.ParseIP(a)} }

// segment is a TCP segment with nothing but the flags that end a connection
// (RFC 9293 §3.1), from port 40000.
func segment(from netip.Addr, to netip.AddrPort) []byte {
	b := make([]byte, 20)
	binary.BigEndian.PutUint16(b, 40000)
	binary.BigEndian.PutUint16(b[2:], to.Port())
	b[12], b[13] = 5<<4, 0x11 // FIN and ACK
	src, dst := from.As4(), to.Addr().As4()
	pseudo := append(append(append([]byte{}, src[:]...), dst[:]...), 0, 6, 0, 20)
	binary.BigEndian.PutUint16(b[16:], checksum(0, append(pseudo, b...)))
	return b
}

// checksum is the Internet checksum (RFC 1071) of a sum and of bytes, an even number of them.
func checksum(sum uint32, b []byte) uint16 {
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
