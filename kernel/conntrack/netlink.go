package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"syscall"

	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Attributes of linux/netfilter/nfnetlink_conntrack.h that the netlink library
// does not name.
const (
	ctaZone     = 18
	ctaMarkMask = 21
	ctaFilter   = 25
	// ctaFilterOrigFlags and the flag for the source address make the kernel
	// itself skip other sources' flows in a listing (since Linux 5.8; older kernels
	// return all, and Flows filters again).
	ctaFilterOrigFlags  = 1
	ctaFilterReplyFlags = 2
	filterFlagSrc       = 1
)

// Kernel is the Interface on the network namespace it was opened in. Listings have
// a socket of their own.
type Kernel struct {
	mu     sync.Mutex
	socket *nl.SocketHandle
	lister *nfattr.Socket
}

var _ Interface = (*Kernel)(nil)

// Open opens a netlink socket in the calling thread's network namespace.
func Open() (*Kernel, error) {
	s, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open conntrack netlink socket: %w", err)
	}
	if err := s.SetReceiveTimeout(&unix.Timeval{Sec: 10}); err != nil {
		s.Close()
		return nil, fmt.Errorf("bound conntrack netlink socket: %w", err)
	}
	l, err := nfattr.OpenSocket()
	if err != nil {
		s.Close()
		return nil, err
	}
	return &Kernel{socket: &nl.SocketHandle{Socket: s}, lister: l}, nil
}

// Close closes the sockets.
func (k *Kernel) Close() {
	k.socket.Close()
	k.lister.Close()
}

// SetMark implements Interface.
func (k *Kernel) SetMark(f Flow, value, mask uint32) error {
	req := k.request(f.Src.Addr(), nl.IPCTNL_MSG_CT_NEW, unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	k.name(req, f)
	req.AddData(nl.NewRtAttr(nl.CTA_MARK, nl.BEUint32Attr(value&mask)))
	req.AddData(nl.NewRtAttr(ctaMarkMask, nl.BEUint32Attr(mask)))
	return f.gone("mark", k.do(req))
}

// Delete implements Interface.
func (k *Kernel) Delete(f Flow) error {
	req := k.request(f.Src.Addr(), nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	k.name(req, f)
	return f.gone("delete", k.do(req))
}

func (k *Kernel) name(req *nl.NetlinkRequest, f Flow) {
	req.AddData(nl.NewRtAttr(nl.CTA_TUPLE_ORIG|unix.NLA_F_NESTED, f.tuple))
	if f.Zone != 0 {
		req.AddData(nl.NewRtAttr(ctaZone, binary.BigEndian.AppendUint16(nil, f.Zone)))
	}
}

func (f Flow) gone(op string, err error) error {
	if err == nil || errors.Is(err, syscall.ENOENT) {
		return nil
	}
	return fmt.Errorf("%s connection %s to %s: %w", op, f.Src, f.Dst, err)
}

func (k *Kernel) request(addr netip.Addr, cmd, flags int) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(cmd|unix.NFNL_SUBSYS_CTNETLINK<<8, flags)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_NETFILTER: k.socket}
	family := uint8(unix.AF_INET)
	if addr.Is6() {
		family = unix.AF_INET6
	}
	req.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	return req
}

func (k *Kernel) do(req *nl.NetlinkRequest) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return req.ExecuteIter(unix.NETLINK_NETFILTER, 0, func([]byte) bool { return true })
}
