package lab

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"
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

// Card sends frames on an interface as they are, as a program with NET_RAW can.
type Card struct {
	// HW is the interface's own hardware address.
	HW    net.HardwareAddr
	fd    int
	iface string
	index int
}

// Card opens an interface of a host.
func (h *Host) Card(iface string) (*Card, error) {
	hw, err := h.Hardware(iface)
	if err != nil {
		return nil, err
	}
	c := &Card{HW: hw, iface: iface, fd: -1}
	err = h.Do(func() error {
		var err error
		if c.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		c.index, err = ifindex(c.fd, iface)
		return err
	})
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("open %s of %s: %w", iface, h.Name, err)
	}
	return c, nil
}

// Hardware returns the hardware address of an interface.
func (h *Host) Hardware(iface string) (net.HardwareAddr, error) {
	out, err := h.Run("ip", "-o", "link", "show", iface)
	if err != nil {
		return nil, err
	}
	_, rest, _ := strings.Cut(out, "link/ether ")
	text, _, _ := strings.Cut(rest, " ")
	hw, err := net.ParseMAC(text)
	if err != nil {
		return nil, fmt.Errorf("hardware address of %s of %s: %w", iface, h.Name, err)
	}
	return hw, nil
}

// Neighbour returns where a host takes a neighbour to be, nil if it does not know.
func (h *Host) Neighbour(iface string, addr netip.Addr) (net.HardwareAddr, error) {
	out, err := h.Run("ip", "neigh", "show", addr.String(), "dev", iface)
	if err != nil {
		return nil, err
	}
	_, rest, ok := strings.Cut(out, "lladdr ")
	if !ok {
		return nil, nil
	}
	text, _, _ := strings.Cut(rest, " ")
	hw, err := net.ParseMAC(text)
	if err != nil {
		return nil, fmt.Errorf("neighbour %s of %s: %w", addr, h.Name, err)
	}
	return hw, nil
}

// Send sends one frame.
func (c *Card) Send(frame []byte) error {
	if err := unix.Sendto(c.fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: c.index, Halen: 6}); err != nil {
		return fmt.Errorf("send on %s: %w", c.iface, err)
	}
	return nil
}

// SendIP sends one IP packet to a hardware address.
func (c *Card) SendIP(to net.HardwareAddr, packet []byte) error {
	typ := uint16(unix.ETH_P_IP)
	if packet[0]>>4 == 6 {
		typ = unix.ETH_P_IPV6
	}
	return c.Send(c.Frame(to, typ, packet))
}

// Frame renders a frame from the card's own address.
func (c *Card) Frame(to net.HardwareAddr, typ uint16, payload []byte) []byte {
	b := append(append([]byte{}, to...), c.HW...)
	return append(binary.BigEndian.AppendUint16(b, typ), payload...)
}

// ARP renders what stands in an ARP packet (RFC 826): op is 1 for a request and 2
// for a reply, hw and ip are the sender's. What follows is padding.
func ARP(op byte, hw net.HardwareAddr, ip netip.Addr, toHW net.HardwareAddr, to netip.Addr) []byte {
	b := append([]byte{0, 1, 8, 0, 6, 4, 0, op}, hw...)
	b = append(append(b, ip.AsSlice()...), toHW...)
	return append(b, to.AsSlice()...)
}

// Close closes the card.
func (c *Card) Close() {
	if c.fd >= 0 {
		unix.Close(c.fd)
	}
}
