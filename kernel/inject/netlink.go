package inject

import (
	"errors"
	"fmt"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The pair of links that injects packets into the node: packets sent on the first arrive
// at the second, which redirects them.
const (
	sendName     = "namegate-t0"
	redirectName = "namegate-t1"
)

// linkMTU of the pair is below what IPv6 needs of a link (RFC 8200 §5), so that
// the kernel runs no IPv6 on it and nothing but our packets is ever on it.
const linkMTU = 1000

// Kernel puts packets into the network namespace it was opened in. Any goroutine may use it.
type Kernel struct {
	h *netlink.Handle

	mu       sync.Mutex
	socket   int // AF_PACKET, for sending only; -1 after Close
	send     netlink.Link
	redirect netlink.Link
	target   int // the index of the interface that redirect leads to; 0: nowhere
}

// Open makes the pair of links in the calling thread's network namespace, in place of an
// earlier agent's pair. It needs NET_ADMIN and NET_RAW.
func Open() (*Kernel, error) {
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a packet socket (it needs NET_RAW): %w", err)
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		_ = unix.Close(socket)
		return nil, fmt.Errorf("open route netlink socket: %w", err)
	}
	k := &Kernel{h: h, socket: socket}
	if err := k.build(); err != nil {
		_ = unix.Close(socket)
		h.Close()
		return nil, err
	}
	return k, nil
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

// build creates the pair again.
func (k *Kernel) build() error {
	if err := remove(k.h); err != nil {
		return err
	}
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: sendName, MTU: linkMTU}, PeerName: redirectName, PeerMTU: linkMTU}
	if err := k.h.LinkAdd(pair); err != nil {
		return fmt.Errorf("make interface %s: %w", sendName, unsupported(err))
	}
	var ends [2]netlink.Link
	for i, name := range []string{sendName, redirectName} {
		l, err := k.h.LinkByName(name)
		if err == nil {
			err = k.h.LinkSetUp(l)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("set interface %s up: %w", name, err), remove(k.h))
		}
		ends[i] = l
	}
	k.send, k.redirect, k.target = ends[0], ends[1], 0
	return nil
}

var errUnsupported = errors.New("this kernel cannot put packets into an interface; load the modules sch_ingress, cls_u32, act_mirred and veth " +
	"(of CONFIG_NET_SCH_INGRESS, CONFIG_NET_CLS_U32, CONFIG_NET_ACT_MIRRED, CONFIG_VETH), or build them in")

// unsupported adds what to do to the errors by which a kernel says that it has
// not the part that is asked for.
func unsupported(err error) error {
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.EOPNOTSUPP) {
		return fmt.Errorf("%w (%w)", errUnsupported, err)
	}
	return err
}

// Send makes an IP packet, IPv4 or IPv6, come in by an interface of this node, the node's end of a
// pod's link, as if the pod whose source address it has had sent it to its gateway. A bridge's port
// is one too. That Send returns does not mean that the packet has been handled. Where this kernel
// cannot do it, the error says which modules to load.
func (k *Kernel) Send(iface string, packet []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.socket < 0 {
		return fmt.Errorf("inject into %s: closed", iface)
	}
	to, err := k.h.LinkByName(iface)
	if err != nil {
		return fmt.Errorf("inject into %s: %w", iface, err)
	}
	if err := k.ensurePair(); err != nil {
		return err
	}
	frame, err := k.frame(to, packet)
	if err != nil {
		return fmt.Errorf("inject into %s: %w", iface, err)
	}
	if err := k.redirectTo(to); err != nil {
		return fmt.Errorf("redirect %s to %s: %w", redirectName, iface, err)
	}
	if err := unix.Sendto(k.socket, frame, 0, &unix.SockaddrLinklayer{Ifindex: k.send.Attrs().Index}); err != nil {
		return fmt.Errorf("send on %s: %w", sendName, err)
	}
	return nil
}

// ensurePair makes the pair again if somebody has removed it.
func (k *Kernel) ensurePair() error {
	_, err := k.h.LinkByIndex(k.send.Attrs().Index)
	if missing(err) {
		return k.build()
	}
	return err
}

// redirectTo redirects the packets of the pair to an interface.
func (k *Kernel) redirectTo(to netlink.Link) error {
	if k.target == to.Attrs().Index {
		return nil
	}
	k.target = 0
	at := k.redirect.Attrs().Index
	qdisc := &netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: at, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS}}
	// With the qdisc goes the filter that leads elsewhere.
	if err := k.h.QdiscDel(qdisc); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOENT) {
		return err
	}
	if err := k.h.QdiscAdd(qdisc); err != nil {
		return unsupported(err)
	}
	redirect := netlink.NewMirredAction(to.Attrs().Index)
	redirect.MirredAction = netlink.TCA_INGRESS_REDIR
	if err := k.h.FilterAdd(&netlink.U32{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: at, Parent: qdisc.Handle, Priority: 1, Protocol: unix.ETH_P_ALL},
		Actions:     []netlink.Action{redirect},
	}); err != nil {
		return unsupported(err)
	}
	k.target = to.Attrs().Index
	return nil
}

// Close removes the pair. One that another agent has made meanwhile stays.
func (k *Kernel) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.socket < 0 {
		return nil
	}
	err := unix.Close(k.socket)
	k.socket = -1
	l, gone := k.h.LinkByIndex(k.send.Attrs().Index)
	if gone == nil && l.Attrs().Name == sendName {
		err = errors.Join(err, k.h.LinkDel(l))
	}
	k.h.Close()
	if err != nil {
		return fmt.Errorf("remove interface %s: %w", sendName, err)
	}
	return nil
}
