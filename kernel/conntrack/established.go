package conntrack

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Attributes and bits of linux/netfilter/nfnetlink_conntrack.h and nf_conntrack_common.h that
// the netlink library does not name.
const (
	ctaStatusMask = 26
	seenReply     = 1 << 1
	assured       = 1 << 2
	// offload: the connection is in a flow table, which ends it there after 30 s without a
	// packet. The kernel does not list its timeout and state.
	offload = 1 << 14
	// unacknowledged is IP_CT_TCP_FLAG_DATA_UNACKNOWLEDGED of nf_conntrack_tcp.h.
	unacknowledged = 0x10
)

// Established implements Interface. Kernels before 5.15 do not know the filter of the status
// and return more connections.
func (k *Kernel) Established(mark, mask uint32, each func(Established)) error {
	t := readTimeouts()
	err := k.lister.List(nl.IPCTNL_MSG_CT_GET|unix.NFNL_SUBSYS_CTNETLINK<<8, unix.AF_UNSPEC, func(b []byte) []byte {
		b = nfattr.AppendUint32(Query{Mark: mark, Mask: mask}.append(b), nl.CTA_STATUS, seenReply)
		return nfattr.AppendUint32(b, ctaStatusMask, seenReply)
	}, func(msg []byte) {
		if e, of, ok := parseEstablished(msg[nfattr.HeaderLen:]); ok && of&mask == mark&mask {
			each(e.at(t))
		}
	})
	if err != nil {
		return fmt.Errorf("list established connections: %w", err)
	}
	return nil
}

// established is an established connection as it is listed.
type established struct {
	Established
	left      time.Duration // until the kernel ends it, 0 if it is offloaded
	offloaded bool
	unacked   bool // TCP: data was sent that is not acknowledged
}

// parseEstablished reads a connection and its mark. Not ok: it is not established.
func parseEstablished(b []byte) (e established, mark uint32, ok bool) {
	var status uint32
	var original, reply, info []byte
	nfattr.Each(b, func(typ int, v []byte) {
		switch {
		case typ == nl.CTA_TUPLE_ORIG:
			original = v
		case typ == nl.CTA_TUPLE_REPLY:
			reply = v
		case typ == nl.CTA_PROTOINFO:
			info = v
		case len(v) != 4:
		case typ == nl.CTA_STATUS:
			status = binary.BigEndian.Uint32(v)
		case typ == nl.CTA_TIMEOUT:
			e.left = time.Duration(binary.BigEndian.Uint32(v)) * time.Second
		case typ == nl.CTA_MARK:
			mark = binary.BigEndian.Uint32(v)
		}
	})
	if status&(assured|offload) == 0 {
		return e, 0, false
	}
	var whole, replied bool
	e.Protocol, e.Src, e.Dst, whole = readTuple(original)
	_, e.Peer, _, replied = readTuple(reply)
	e.offloaded = status&offload != 0
	if e.Protocol == unix.IPPROTO_TCP && !e.offloaded {
		var state uint8
		state, e.unacked = tcpState(info)
		whole = whole && state == nl.TCP_CONNTRACK_ESTABLISHED
	}
	return e, mark, whole && replied
}

// readTuple is parseTuple without a map for each attribute.
func readTuple(b []byte) (proto uint8, src, dst netip.AddrPort, ok bool) {
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
				case typ == nl.CTA_PROTO_SRC_PORT:
					fromPort = port(v)
				case typ == nl.CTA_PROTO_DST_PORT:
					toPort = port(v)
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

// timeouts are for how long the kernel keeps a connection after a packet, 0 where that is not
// known.
type timeouts struct {
	tcp, tcpUnacked, tcpRetransmitted, udp, sctp, gre time.Duration
}

// readTimeouts reads the sysctls of the calling thread's network namespace.
func readTimeouts() timeouts {
	read := func(name string) time.Duration {
		b, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_" + name)
		if err != nil { // a kernel without the protocol
			return 0
		}
		s, _ := strconv.Atoi(strings.TrimSpace(string(b)))
		return time.Duration(s) * time.Second
	}
	return timeouts{
		tcp: read("tcp_timeout_established"), tcpUnacked: read("tcp_timeout_unacknowledged"), tcpRetransmitted: read("tcp_timeout_max_retrans"),
		udp: read("udp_timeout_stream"), sctp: read("sctp_timeout_established"), gre: read("gre_timeout_stream"),
	}
}

// at tells the idle time: how much less time is left than the last packet gave the
// connection (see nf_conntrack_proto_*.c).
func (e *established) at(t timeouts) Established {
	var given time.Duration
	switch e.Protocol {
	case unix.IPPROTO_TCP:
		given = t.tcp
		if e.unacked {
			given = min(t.tcp, t.tcpUnacked)
			if e.left > given { // retransmitted several times
				given = min(t.tcp, t.tcpRetransmitted)
			}
		}
	case unix.IPPROTO_UDP, unix.IPPROTO_UDPLITE:
		given = t.udp
	case unix.IPPROTO_SCTP:
		given = t.sctp
	case unix.IPPROTO_GRE:
		given = t.gre
	}
	switch {
	case e.offloaded:
		e.Idle = 0
	case given == 0 || e.left > given:
		e.Idle = IdleUnknown
	default:
		e.Idle = given - e.left
	}
	return e.Established
}
