package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// ported tells whether connections of a protocol have ports.
func ported(proto uint8) bool {
	switch proto {
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP, unix.IPPROTO_UDPLITE, unix.IPPROTO_DCCP:
		return true
	}
	return false
}

// Lookup implements Interface.
func (k *Kernel) Lookup(proto uint8, src, dst netip.AddrPort) (f Flow, found bool, err error) {
	if !ported(proto) || src.Addr().Is4() != dst.Addr().Is4() {
		return Flow{}, false, nil
	}
	// The kernel answers as if more were to come: the acknowledgement is the end.
	req := k.request(src.Addr(), nl.IPCTNL_MSG_CT_GET, unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	req.AddData(nl.NewRtAttr(nl.CTA_TUPLE_ORIG|unix.NLA_F_NESTED, tupleOf(proto, src, dst)))
	k.mu.Lock()
	defer k.mu.Unlock()
	err = req.ExecuteIter(unix.NETLINK_NETFILTER, 0, func(msg []byte) bool {
		if len(msg) > nfattr.HeaderLen {
			f, found = parseFlow(msg[nfattr.HeaderLen:])
		}
		return true
	})
	switch {
	case errors.Is(err, syscall.ENOENT):
		return Flow{}, false, nil
	case err != nil:
		return Flow{}, false, fmt.Errorf("look up connection %s to %s: %w", src, dst, err)
	}
	// The kernel takes a tuple of either direction.
	if !found || f.Src != src || f.Dst != dst {
		return Flow{}, false, nil
	}
	return f, true, nil
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
	b = nfattr.Append(b, nl.CTA_PROTO_SRC_PORT, binary.BigEndian.AppendUint16(nil, src.Port()))
	b = nfattr.Append(b, nl.CTA_PROTO_DST_PORT, binary.BigEndian.AppendUint16(nil, dst.Port()))
	nfattr.End(b, ports)
	return b
}
