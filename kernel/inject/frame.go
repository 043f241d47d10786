package inject

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// frame puts a packet behind the Ethernet header that the pod would write.
func (k *Kernel) frame(to netlink.Link, packet []byte) ([]byte, error) {
	source, dest, etherType, err := readHeader(packet)
	if err != nil {
		return nil, err
	}
	if to.Attrs().MasterIndex != 0 {
		master, err := k.h.LinkByIndex(to.Attrs().MasterIndex)
		if err != nil {
			return nil, fmt.Errorf("what it belongs to: %w", err)
		}
		if master.Type() == "bridge" { // no other master looks at the frame
			return k.bridgedFrame(master, to, source, dest, etherType, packet)
		}
	}
	own, err := k.neighbour(to.Attrs().Index, source)
	if own == nil {
		own = k.send.Attrs().HardwareAddr
	}
	// The kernel takes a packet for the host's own by the address of the link that
	// it came out of, which is the second of the pair. A bridge looks again.
	return ethernet(k.redirect.Attrs().HardwareAddr, own, etherType, packet), err
}

func (k *Kernel) bridgedFrame(bridge, port netlink.Link, source, dest netip.Addr, etherType uint16, packet []byte) ([]byte, error) {
	next, err := k.nextOnBridge(bridge, dest)
	if err != nil {
		return nil, err
	}
	own, err := k.bridged(bridge.Attrs().Index, source)
	if err != nil {
		return nil, err
	}
	if err := k.checkPort(bridge, port, own); err != nil {
		return nil, err
	}
	return ethernet(next, own, etherType, packet), nil
}

// checkPort returns an error if the bridge knows a hardware address as its own or another
// port's. It learns from the frames that we send, so a pod that claims a neighbour's
// address would get the neighbour's frames.
func (k *Kernel) checkPort(bridge, port netlink.Link, hw net.HardwareAddr) error {
	known, err := k.h.NeighList(0, unix.AF_BRIDGE)
	if err != nil {
		return fmt.Errorf("forwarding table of %s: %w", bridge.Attrs().Name, err)
	}
	for _, e := range known {
		if e.MasterIndex != bridge.Attrs().Index || !bytes.Equal(e.HardwareAddr, hw) {
			continue
		}
		if e.LinkIndex != port.Attrs().Index || e.State&netlink.NUD_PERMANENT != 0 {
			return fmt.Errorf("its pod claims %s, which is another's on %s", hw, bridge.Attrs().Name)
		}
	}
	return nil
}

func ethernet(to, from net.HardwareAddr, etherType uint16, packet []byte) []byte {
	frame := append(append(make([]byte, 0, 14+len(packet)), to...), from...)
	return append(binary.BigEndian.AppendUint16(frame, etherType), packet...)
}

// nextOnBridge returns the hardware address that a pod on a bridge sends to: the
// destination's if it is on that bridge too, else the bridge's own.
func (k *Kernel) nextOnBridge(bridge netlink.Link, dest netip.Addr) (net.HardwareAddr, error) {
	index := bridge.Attrs().Index
	routes, err := k.h.RouteGet(dest.AsSlice())
	if err == nil && len(routes) == 1 && routes[0].LinkIndex == index && routes[0].Gw == nil && routes[0].Type == unix.RTN_UNICAST {
		return k.bridged(index, dest)
	}
	return bridge.Attrs().HardwareAddr, nil
}

// resolveTries is how long the node is given to find a neighbour that it has forgotten,
// in tries of resolveInterval: on a bridge of its own an answer takes microseconds.
const (
	resolveTries    = 20
	resolveInterval = 10 * time.Millisecond
)

// bridged returns the hardware address of an address on a bridge. The bridge would
// learn any other.
func (k *Kernel) bridged(bridge int, addr netip.Addr) (net.HardwareAddr, error) {
	for i := range resolveTries {
		hw, err := k.neighbour(bridge, addr)
		if err != nil || hw != nil {
			return hw, err
		}
		if i == 0 {
			// The kernel looks for it as if it had something to send. That it cannot
			// shows when there is no answer.
			_ = k.h.NeighSet(&netlink.Neigh{LinkIndex: bridge, IP: addr.AsSlice(), Flags: netlink.NTF_USE, State: netlink.NUD_NONE})
		}
		time.Sleep(resolveInterval)
	}
	return nil, fmt.Errorf("%s does not say its hardware address", addr)
}

// neighbour returns the hardware address of an address, nil without one.
func (k *Kernel) neighbour(on int, addr netip.Addr) (net.HardwareAddr, error) {
	family := unix.AF_INET
	if addr.Is6() {
		family = unix.AF_INET6
	}
	list, err := k.h.NeighList(on, family)
	if err != nil {
		return nil, fmt.Errorf("list neighbours: %w", err)
	}
	for _, n := range list {
		if a, _ := netip.AddrFromSlice(n.IP); a.Unmap() == addr && len(n.HardwareAddr) == 6 {
			return n.HardwareAddr, nil
		}
	}
	return nil, nil
}

var errNoPacket = errors.New("it is no IP packet")

// readHeader reads what of an IP header the frame around it depends on.
func readHeader(packet []byte) (source, dest netip.Addr, etherType uint16, err error) {
	switch {
	case len(packet) >= 20 && packet[0]>>4 == 4:
		return netip.AddrFrom4([4]byte(packet[12:])), netip.AddrFrom4([4]byte(packet[16:])), unix.ETH_P_IP, nil
	case len(packet) >= 40 && packet[0]>>4 == 6:
		return netip.AddrFrom16([16]byte(packet[8:])), netip.AddrFrom16([16]byte(packet[24:])), unix.ETH_P_IPV6, nil
	}
	return source, dest, 0, errNoPacket
}
