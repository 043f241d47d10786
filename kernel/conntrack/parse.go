package conntrack

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/kernel/nfattr"
)

// tracked is a connection as the kernel lists it. Its tuple is valid until the next one is read.
type tracked struct {
	Flow
	established bool
	left        time.Duration // until the kernel ends it, 0 if it is offloaded
	unacked     bool          // TCP: data was sent that is not acknowledged
}

// parse reads a message. Not ok: it is no connection between addresses.
func parse(msg []byte) (c tracked, ok bool) {
	var status uint32
	var state uint8
	var whole, replied bool
	nfattr.Each(msg[nfattr.HeaderLen:], func(typ int, v []byte) {
		switch {
		case typ == nl.CTA_TUPLE_ORIG:
			c.tuple = v
			c.Protocol, c.Src, c.Dst, whole = parseTuple(v)
		case typ == nl.CTA_TUPLE_REPLY:
			_, c.Peer, _, replied = parseTuple(v)
		case typ == nl.CTA_PROTOINFO:
			state, c.unacked = tcpState(v)
		case typ == nl.CTA_ZONE && len(v) == 2:
			c.Zone = binary.BigEndian.Uint16(v)
		case typ == nl.CTA_STATUS:
			status = nfattr.Uint32(v)
		case typ == nl.CTA_TIMEOUT:
			c.left = time.Duration(nfattr.Uint32(v)) * time.Second
		case typ == nl.CTA_MARK:
			c.Mark = nfattr.Uint32(v)
		}
	})
	c.Offloaded = status&offload != 0
	c.established = c.Offloaded || status&assured != 0 && (c.Protocol != unix.IPPROTO_TCP || state == nl.TCP_CONNTRACK_ESTABLISHED)
	return c, whole && replied
}

// parseTuple reads one direction of a connection.
func parseTuple(b []byte) (proto uint8, src, dst netip.AddrPort, ok bool) {
	var from, to netip.Addr
	var fromPort, toPort uint16
	nfattr.Each(b, func(typ int, v []byte) {
		switch typ {
		case nl.CTA_TUPLE_IP:
			nfattr.Each(v, func(typ int, ip []byte) {
				switch typ {
				case nl.CTA_IP_V4_SRC, nl.CTA_IP_V6_SRC:
					from, _ = netip.AddrFromSlice(ip)
				case nl.CTA_IP_V4_DST, nl.CTA_IP_V6_DST:
					to, _ = netip.AddrFromSlice(ip)
				}
			})
		case nl.CTA_TUPLE_PROTO:
			nfattr.Each(v, func(typ int, v []byte) {
				switch {
				case typ == nl.CTA_PROTO_NUM && len(v) == 1:
					proto = v[0]
				case typ == nl.CTA_PROTO_SRC_PORT && len(v) == 2:
					fromPort = binary.BigEndian.Uint16(v)
				case typ == nl.CTA_PROTO_DST_PORT && len(v) == 2:
					toPort = binary.BigEndian.Uint16(v)
				}
			})
		}
	})
	return proto, netip.AddrPortFrom(from, fromPort), netip.AddrPortFrom(to, toPort), from.IsValid() && to.IsValid()
}

// tcpState reads the state of a TCP connection, and whether data of either side is
// unacknowledged.
func tcpState(info []byte) (state uint8, unacked bool) {
	nfattr.Each(info, func(typ int, v []byte) {
		if typ != nl.CTA_PROTOINFO_TCP {
			return
		}
		nfattr.Each(v, func(typ int, v []byte) {
			switch {
			case typ == nl.CTA_PROTOINFO_TCP_STATE && len(v) == 1:
				state = v[0]
			case (typ == nl.CTA_PROTOINFO_TCP_FLAGS_ORIGINAL || typ == nl.CTA_PROTOINFO_TCP_FLAGS_REPLY) && len(v) == 2:
				unacked = unacked || v[0]&unacknowledged != 0 // struct nf_ct_tcp_flags: the flags, a mask
			}
		})
	})
	return state, unacked
}
