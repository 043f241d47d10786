package lab

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"
)

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
