package inject

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The pair of links that packets are put into the node by: what is sent on the
// first comes out of the second, which redirects it.
const (
	sendName     = "namegate-t0"
	redirectName = "namegate-t1"
)

// linkMTU of the pair is below what IPv6 needs of a link (RFC 8200 §5), so that
// the kernel runs no IPv6 on it and nothing but our packets is ever on it.
const linkMTU = 1000

// Real is the Interface on the network namespace it was opened in.
type Real struct {
	h *netlink.Handle

	mu       sync.Mutex
	socket   int // AF_PACKET, for sending only; -1 after Close
	send     netlink.Link
	redirect netlink.Link
	target   int // the index of the interface that redirect leads to; 0: nowhere
}

var _ Interface = (*Real)(nil)

// Open makes the pair of links in the calling thread's network namespace, in
// place of one that is left of an earlier agent. It needs NET_ADMIN and NET_RAW.
func Open() (*Real, error) {
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a packet socket (it needs NET_RAW): %w", err)
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		_ = unix.Close(socket)
		return nil, fmt.Errorf("open route netlink socket: %w", err)
	}
	r := &Real{h: h, socket: socket}
	if err := r.build(); err != nil {
		_ = unix.Close(socket)
		h.Close()
		return nil, err
	}
	return r, nil
}

// Remove removes the pair that any agent left in the calling thread's network
// namespace; that there is none is no error.
func Remove() error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open route netlink socket: %w", err)
	}
	defer h.Close()
	return remove(h)
}

func remove(h *netlink.Handle) error {
	for _, name := range []string{sendName, redirectName} {
		l, err := h.LinkByName(name)
		if missing(err) {
			continue
		}
		if err == nil {
			err = h.LinkDel(l)
		}
		if err != nil && !errors.Is(err, syscall.ENODEV) {
			return fmt.Errorf("remove interface %s: %w", name, err)
		}
	}
	return nil
}

func missing(err error) bool {
	var not netlink.LinkNotFoundError
	return errors.As(err, &not)
}

// build makes the pair anew.
func (r *Real) build() error {
	if err := remove(r.h); err != nil {
		return err
	}
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: sendName, MTU: linkMTU}, PeerName: redirectName, PeerMTU: linkMTU}
	if err := r.h.LinkAdd(pair); err != nil {
		return fmt.Errorf("make interface %s: %w", sendName, unsupported(err))
	}
	var ends [2]netlink.Link
	for i, name := range []string{sendName, redirectName} {
		l, err := r.h.LinkByName(name)
		if err == nil {
			err = r.h.LinkSetUp(l)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("set interface %s up: %w", name, err), remove(r.h))
		}
		ends[i] = l
	}
	r.send, r.redirect, r.target = ends[0], ends[1], 0
	return nil
}

// unsupported adds what to do to the errors by which a kernel says that it has
// not the part that is asked for.
func unsupported(err error) error {
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.EOPNOTSUPP) {
		return fmt.Errorf("%w (%w)", errUnsupported, err)
	}
	return err
}

// Send implements Interface.
func (r *Real) Send(iface string, packet []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.socket < 0 {
		return fmt.Errorf("inject into %s: closed", iface)
	}
	to, err := r.h.LinkByName(iface)
	if err != nil {
		return fmt.Errorf("inject into %s: %w", iface, err)
	}
	if err := r.stand(); err != nil {
		return err
	}
	frame, err := r.frame(to, packet)
	if err != nil {
		return fmt.Errorf("inject into %s: %w", iface, err)
	}
	if err := r.aim(to); err != nil {
		return fmt.Errorf("redirect %s to %s: %w", redirectName, iface, err)
	}
	if err := unix.Sendto(r.socket, frame, 0, &unix.SockaddrLinklayer{Ifindex: r.send.Attrs().Index}); err != nil {
		return fmt.Errorf("send on %s: %w", sendName, err)
	}
	return nil
}

// stand makes the pair again if somebody has removed it.
func (r *Real) stand() error {
	_, err := r.h.LinkByIndex(r.send.Attrs().Index)
	if missing(err) {
		return r.build()
	}
	return err
}

// aim leads what comes out of the pair to an interface.
func (r *Real) aim(to netlink.Link) error {
	if r.target == to.Attrs().Index {
		return nil
	}
	r.target = 0
	at := r.redirect.Attrs().Index
	qdisc := &netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: at, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS}}
	// With the qdisc goes the filter that leads elsewhere.
	if err := r.h.QdiscDel(qdisc); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOENT) {
		return err
	}
	if err := r.h.QdiscAdd(qdisc); err != nil {
		return unsupported(err)
	}
	redirect := netlink.NewMirredAction(to.Attrs().Index)
	redirect.MirredAction = netlink.TCA_INGRESS_REDIR
	if err := r.h.FilterAdd(&netlink.U32{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: at, Parent: qdisc.Handle, Priority: 1, Protocol: unix.ETH_P_ALL},
		Actions:     []netlink.Action{redirect},
	}); err != nil {
		return unsupported(err)
	}
	r.target = to.Attrs().Index
	return nil
}

// frame puts a packet behind the Ethernet header that the pod would write.
func (r *Real) frame(to netlink.Link, packet []byte) ([]byte, error) {
	source, dest, etherType, err := readHeader(packet)
	if err != nil {
		return nil, err
	}
	if bridge := to.Attrs().MasterIndex; bridge != 0 {
		next, err := r.nextOnBridge(bridge, dest)
		if err != nil {
			return nil, err
		}
		own, err := r.bridged(bridge, source)
		return ethernet(next, own, etherType, packet), err
	}
	own, err := r.neighbour(to.Attrs().Index, source)
	if own == nil {
		own = r.send.Attrs().HardwareAddr
	}
	// The kernel takes a packet for the host's own by the address of the link that
	// it came out of, which is the second of the pair. A bridge looks again.
	return ethernet(r.redirect.Attrs().HardwareAddr, own, etherType, packet), err
}

func ethernet(to, from net.HardwareAddr, etherType uint16, packet []byte) []byte {
	frame := append(append(make([]byte, 0, 14+len(packet)), to...), from...)
	return append(binary.BigEndian.AppendUint16(frame, etherType), packet...)
}

// nextOnBridge returns the hardware address that a pod on a bridge sends to: the
// destination's if it is on that bridge too, else the bridge's own.
func (r *Real) nextOnBridge(bridge int, dest netip.Addr) (net.HardwareAddr, error) {
	routes, err := r.h.RouteGet(dest.AsSlice())
	if err == nil && len(routes) == 1 && routes[0].LinkIndex == bridge && routes[0].Gw == nil && routes[0].Type == unix.RTN_UNICAST {
		return r.bridged(bridge, dest)
	}
	l, err := r.h.LinkByIndex(bridge)
	if err != nil {
		return nil, fmt.Errorf("its bridge: %w", err)
	}
	return l.Attrs().HardwareAddr, nil
}

// hearing is how long the node is given to find a neighbour that it has forgotten,
// in tries of hearingEach: on a bridge of its own an answer takes microseconds.
const (
	hearing     = 20
	hearingEach = 10 * time.Millisecond
)

// bridged returns the hardware address of an address on a bridge. The bridge would
// learn any other.
func (r *Real) bridged(bridge int, addr netip.Addr) (net.HardwareAddr, error) {
	for i := range hearing {
		hw, err := r.neighbour(bridge, addr)
		if err != nil || hw != nil {
			return hw, err
		}
		if i == 0 {
			// The kernel looks for it as if it had something to send. That it cannot
			// shows when there is no answer.
			_ = r.h.NeighSet(&netlink.Neigh{LinkIndex: bridge, IP: addr.AsSlice(), Flags: netlink.NTF_USE, State: netlink.NUD_NONE})
		}
		time.Sleep(hearingEach)
	}
	return nil, fmt.Errorf("%s does not say its hardware address", addr)
}

// neighbour returns the hardware address of an address, nil without one.
func (r *Real) neighbour(on int, addr netip.Addr) (net.HardwareAddr, error) {
	family := unix.AF_INET
	if addr.Is6() {
		family = unix.AF_INET6
	}
	list, err := r.h.NeighList(on, family)
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

// Close implements Interface. A pair that another agent has made meanwhile stays.
func (r *Real) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.socket < 0 {
		return nil
	}
	err := unix.Close(r.socket)
	r.socket = -1
	l, gone := r.h.LinkByIndex(r.send.Attrs().Index)
	if gone == nil && l.Attrs().Name == sendName {
		err = errors.Join(err, r.h.LinkDel(l))
	}
	r.h.Close()
	if err != nil {
		return fmt.Errorf("remove interface %s: %w", sendName, err)
	}
	return nil
}
