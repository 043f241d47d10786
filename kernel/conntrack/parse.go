package conntrack

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// sourceAt is where a message of a connection has the bytes of its original
// source: behind the heads of the message, of the tuple, of its addresses and of
// the first of them.
const sourceAt = nfattr.HeaderLen + 3*unix.SizeofNlAttr

// source reads the original source of a message without reading the rest: most
// connections of a listing do not match. Not ok: the message does not begin as the kernel
// writes it.
func source(msg []byte) (a netip.Addr, ok bool) {
	if len(msg) < sourceAt+16 || !begins(msg[nfattr.HeaderLen:], nl.CTA_TUPLE_ORIG) || !begins(msg[nfattr.HeaderLen+unix.SizeofNlAttr:], nl.CTA_TUPLE_IP) {
		return a, false
	}
	head := msg[sourceAt-unix.SizeofNlAttr:]
	switch length := binary.NativeEndian.Uint16(head); {
	case begins(head, nl.CTA_IP_V4_SRC) && length == unix.SizeofNlAttr+4:
		return netip.AddrFrom4([4]byte(msg[sourceAt:])), true
	case begins(head, nl.CTA_IP_V6_SRC) && length == unix.SizeofNlAttr+16:
		return netip.AddrFrom16([16]byte(msg[sourceAt:])), true
	}
	return a, false
}

func begins(attr []byte, typ uint16) bool {
	return binary.NativeEndian.Uint16(attr[2:])&nl.NLA_TYPE_MASK == typ
}

func parseFlow(b []byte) (Flow, bool) {
	var f Flow
	a := nfattr.Parse(b)
	f.tuple = slices.Clone(a[nl.CTA_TUPLE_ORIG]) // the receive buffer is used again
	if v := a[nl.CTA_MARK]; len(v) == 4 {
		f.Mark = binary.BigEndian.Uint32(v)
	}
	if v := a[nl.CTA_STATUS]; len(v) == 4 {
		f.Offloaded = binary.BigEndian.Uint32(v)&offload != 0
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
