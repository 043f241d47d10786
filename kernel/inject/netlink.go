package inject

import (
	"errors"
	"fmt"
	"sync"
	"syscall"

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
