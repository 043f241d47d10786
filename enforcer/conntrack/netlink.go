package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"github.com/namegate/namegate/enforcer/nfattr"
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
	// itself skip other sources' flows in a dump (since Linux 5.8; older kernels
	// return all, and Flows filters again).
	ctaFilterOrigFlags = 1
	filterFlagSrc      = 1
)

// Kernel is the Interface on the network namespace it was opened in.
type Kernel struct {
	mu     sync.Mutex
	socket *nl.SocketHandle
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
	return &Kernel{socket: &nl.SocketHandle{Socket: s}}, nil
}

// Close closes the socket.
func (k *Kernel) Close() { k.socket.Close() }

// Flows implements Interface.
func (k *Kernel) Flows(addr netip.Addr) ([]Flow, error) {
	req := k.request(addr, nl.IPCTNL_MSG_CT_GET, unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	if addr.Is4() {
		filterSource(req, addr)
	}
	var out []Flow
	err := k.do(req, func(msg []byte) {
		if f, ok := parseFlow(msg[nfattr.HeaderLen:]); ok && f.Src.Addr() == addr {
			out = append(out, f)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list connections of %s: %w", addr, err)
	}
	return out, nil
}

// filterSource asks for one source's flows alone. Only for IPv4: Linux up to at
// least 6.18 takes the comparison of IPv6 addresses the wrong way round here and
// returns every flow but those asked for.
func filterSource(req *nl.NetlinkRequest, addr netip.Addr) {
	tuple := nl.NewRtAttr(nl.CTA_TUPLE_ORIG|unix.NLA_F_NESTED, nil)
	tuple.AddRtAttr(nl.CTA_TUPLE_IP|unix.NLA_F_NESTED, nil).AddRtAttr(nl.CTA_IP_V4_SRC, addr.AsSlice())
	req.AddData(tuple)
	filter := nl.NewRtAttr(ctaFilter|unix.NLA_F_NESTED, nil)
	filter.AddRtAttr(ctaFilterOrigFlags, nl.Uint32Attr(filterFlagSrc))
	req.AddData(filter)
}

// SetMark implements Interface.
func (k *Kernel) SetMark(f Flow, value, mask uint32) error {
	req := k.request(f.Src.Addr(), nl.IPCTNL_MSG_CT_NEW, unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	k.name(req, f)
	req.AddData(nl.NewRtAttr(nl.CTA_MARK, nl.BEUint32Attr(value&mask)))
	req.AddData(nl.NewRtAttr(ctaMarkMask, nl.BEUint32Attr(mask)))
	return f.gone("mark", k.do(req, nil))
}

// Delete implements Interface.
func (k *Kernel) Delete(f Flow) error {
	req := k.request(f.Src.Addr(), nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	k.name(req, f)
	return f.gone("delete", k.do(req, nil))
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

func (k *Kernel) do(req *nl.NetlinkRequest, each func([]byte)) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return req.ExecuteIter(unix.NETLINK_NETFILTER, 0, func(msg []byte) bool {
		if each != nil {
			each(msg)
		}
		return true
	})
}

func parseFlow(b []byte) (Flow, bool) {
	var f Flow
	a := nfattr.Parse(b)
	f.tuple = slices.Clone(a[nl.CTA_TUPLE_ORIG]) // the receive buffer is used again
	if v := a[nl.CTA_MARK]; len(v) == 4 {
		f.Mark = binary.BigEndian.Uint32(v)
	}
	if v := a[ctaZone]; len(v) == 2 {
		f.Zone = binary.BigEndian.Uint16(v)
	}
	var ok, okReply bool
	f.Protocol, f.Src, f.Dst, ok = parseTuple(a[nl.CTA_TUPLE_ORIG])
	_, f.Peer, _, okReply = parseTuple(a[nl.CTA_TUPLE_REPLY])
	return f, ok && okReply
}

func parseTuple(b []byte) (proto uint8, src, dst netip.AddrPort, ok bool) {
	a := nfattr.Parse(b)
	ip, p := nfattr.Parse(a[nl.CTA_TUPLE_IP]), nfattr.Parse(a[nl.CTA_TUPLE_PROTO])
	from, ok1 := netip.AddrFromSlice(first(ip[nl.CTA_IP_V4_SRC], ip[nl.CTA_IP_V6_SRC]))
	to, ok2 := netip.AddrFromSlice(first(ip[nl.CTA_IP_V4_DST], ip[nl.CTA_IP_V6_DST]))
	if num := p[nl.CTA_PROTO_NUM]; len(num) == 1 {
		proto = num[0]
	}
	return proto, netip.AddrPortFrom(from, port(p[nl.CTA_PROTO_SRC_PORT])), netip.AddrPortFrom(to, port(p[nl.CTA_PROTO_DST_PORT])), ok1 && ok2
}

func first(a, b []byte) []byte {
	if a != nil {
		return a
	}
	return b
}

func port(b []byte) uint16 {
	if len(b) != 2 {
		return 0
	}
	return binary.BigEndian.Uint16(b)
}
