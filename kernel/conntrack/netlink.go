package conntrack

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/kernel/nfattr"
)

// Attributes and bits of linux/netfilter/nfnetlink_conntrack.h and nf_conntrack_common.h that
// the netlink library does not name.
const (
	ctaMarkMask   = 21
	ctaFilter     = 25
	ctaStatusMask = 26
	// ctaFilterOrigFlags and the flag for the source address make the kernel
	// itself skip other sources' flows in a listing (since Linux 5.8; older kernels
	// return all, and Flows filters again).
	ctaFilterOrigFlags  = 1
	ctaFilterReplyFlags = 2
	filterFlagSrc       = 1
	seenReply           = 1 << 1
	assured             = 1 << 2
	// offload: the connection is in a flow table, which ends it there after 30 s without a
	// packet. The kernel does not list its timeout and state.
	offload = 1 << 14
	// unacknowledged is IP_CT_TCP_FLAG_DATA_UNACKNOWLEDGED of nf_conntrack_tcp.h.
	unacknowledged = 0x10
)

// Kernel is the Interface on the network namespace it was opened in. Listings have
// a socket of their own.
type Kernel struct{ changes, lister *nfattr.Socket }

var _ Interface = (*Kernel)(nil)

// Open opens netlink sockets in the calling thread's network namespace.
func Open() (*Kernel, error) {
	k := &Kernel{}
	var err error
	for _, s := range []**nfattr.Socket{&k.changes, &k.lister} {
		if *s, err = nfattr.OpenSocket(); err != nil {
			k.Close()
			return nil, err
		}
	}
	return k, nil
}

// Close closes the sockets.
func (k *Kernel) Close() {
	k.changes.Close()
	k.lister.Close()
}

// SetMark implements Interface.
func (k *Kernel) SetMark(f Flow, value, mask uint32) error {
	return f.gone("mark", k.changes.Change(message(nl.IPCTNL_MSG_CT_NEW), 0, familyOf(f.Src.Addr()), func(b []byte) []byte {
		return nfattr.AppendUint32(nfattr.AppendUint32(f.append(b), nl.CTA_MARK, value&mask), ctaMarkMask, mask)
	}))
}

// Delete implements Interface.
func (k *Kernel) Delete(f Flow) error {
	return f.gone("delete", k.changes.Change(message(nl.IPCTNL_MSG_CT_DELETE), 0, familyOf(f.Src.Addr()), f.append))
}

// Lookup implements Interface.
func (k *Kernel) Lookup(proto uint8, src, dst netip.AddrPort) (f Flow, found bool, err error) {
	if !ported(proto) || src.Addr().Is4() != dst.Addr().Is4() {
		return Flow{}, false, nil
	}
	asked := Flow{tuple: tupleOf(proto, src, dst)}
	err = k.changes.Get(message(nl.IPCTNL_MSG_CT_GET), familyOf(src.Addr()), asked.append, func(msg []byte) {
		// The kernel takes a tuple of either direction.
		if c, ok := parse(msg); ok && c.Src == src && c.Dst == dst {
			f, found = c.kept(), true
		}
	})
	if err != nil && !errors.Is(err, syscall.ENOENT) {
		return Flow{}, false, fmt.Errorf("look up connection %s to %s: %w", src, dst, err)
	}
	return f, found, nil
}

// ported tells whether connections of a protocol have ports.
func ported(proto uint8) bool {
	switch proto {
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP, unix.IPPROTO_UDPLITE, unix.IPPROTO_DCCP:
		return true
	}
	return false
}

// message is the type of a message of connection tracking.
func message(command uint16) uint16 { return unix.NFNL_SUBSYS_CTNETLINK<<8 | command }

func familyOf(a netip.Addr) uint8 {
	if a.Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// append names the flow in a request.
func (f Flow) append(b []byte) []byte {
	b = nfattr.Append(b, nl.CTA_TUPLE_ORIG|unix.NLA_F_NESTED, f.tuple)
	if f.Zone != 0 {
		b = nfattr.AppendUint16(b, nl.CTA_ZONE, f.Zone)
	}
	return b
}

// kept returns the flow with a tuple of its own.
func (c *tracked) kept() Flow {
	c.tuple = slices.Clone(c.tuple)
	return c.Flow
}

func (f Flow) gone(op string, err error) error {
	if err == nil || errors.Is(err, syscall.ENOENT) {
		return nil
	}
	return fmt.Errorf("%s connection %s to %s: %w", op, f.Src, f.Dst, err)
}

// tupleOf renders the original direction of a connection.
func tupleOf(proto uint8, src, dst netip.AddrPort) []byte {
	from, to := nl.CTA_IP_V4_SRC, nl.CTA_IP_V4_DST
	if src.Addr().Is6() {
		from, to = nl.CTA_IP_V6_SRC, nl.CTA_IP_V6_DST
	}
	b, ip := nfattr.Begin(nil, nl.CTA_TUPLE_IP)
	b = nfattr.Append(b, from, src.Addr().AsSlice())
	b = nfattr.Append(b, to, dst.Addr().AsSlice())
	nfattr.End(b, ip)
	b, ports := nfattr.Begin(b, nl.CTA_TUPLE_PROTO)
	b = nfattr.AppendUint8(b, nl.CTA_PROTO_NUM, proto)
	b = nfattr.AppendUint16(b, nl.CTA_PROTO_SRC_PORT, src.Port())
	b = nfattr.AppendUint16(b, nl.CTA_PROTO_DST_PORT, dst.Port())
	nfattr.End(b, ports)
	return b
}
