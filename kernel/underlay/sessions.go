package underlay

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// bgp is the port of BGP (RFC 4271).
const bgp = 179

// Numbers of linux/inet_diag.h and include/net/tcp_states.h.
const (
	inetDiagReqLen = 56
	inetDiagMsgLen = 72
	tcpEstablished = 1
	tcpListen      = 10
)

// Sessions implements Interface. Sockets that are still dialling are no sessions: a process
// must not open a destination for itself.
func (k *Kernel) Sessions() (Sessions, error) {
	var out Sessions
	peers := map[netip.Addr]bool{}
	err := k.sockets4and6(1<<tcpEstablished|1<<tcpListen, func(s socket) {
		switch {
		case s.state == tcpListen:
			out.Listens = out.Listens || s.local == bgp
		case s.local == bgp || s.remote.Port() == bgp:
			if a := s.remote.Addr(); !a.IsLoopback() {
				peers[a] = true
			}
		}
	})
	if err != nil {
		return Sessions{}, err
	}
	out.Peers = sorted(peers, netip.Addr.Compare)
	return out, nil
}

// Connections implements Interface.
func (k *Kernel) Connections() (ends []netip.AddrPort, err error) {
	err = k.sockets4and6(1<<tcpEstablished, func(s socket) {
		if !s.remote.Addr().IsLoopback() {
			ends = append(ends, s.remote)
		}
	})
	return ends, err
}

// sockets4and6 lists the TCP sockets of both families in states, a bit each.
func (k *Kernel) sockets4and6(states uint32, each func(socket)) error {
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		req := make(raw, inetDiagReqLen)
		req[0], req[1] = family, unix.IPPROTO_TCP
		binary.NativeEndian.PutUint32(req[4:], states)
		err := k.dump(unix.NETLINK_INET_DIAG, nl.SOCK_DIAG_BY_FAMILY, nl.SOCK_DIAG_BY_FAMILY, func(msg []byte) {
			if s, ok := parseSocket(msg); ok {
				each(s)
			}
		}, req)
		if err != nil {
			return fmt.Errorf("list TCP sockets: %w", err)
		}
	}
	return nil
}

type socket struct {
	state  byte
	local  uint16
	remote netip.AddrPort
}

// parseSocket reads a struct inet_diag_msg.
func parseSocket(msg []byte) (s socket, ok bool) {
	if len(msg) < inetDiagMsgLen {
		return s, false
	}
	ip := msg[24:28]
	if msg[0] == unix.AF_INET6 {
		ip = msg[24:40]
	}
	a, ok := netip.AddrFromSlice(ip)
	return socket{msg[1], binary.BigEndian.Uint16(msg[4:]), netip.AddrPortFrom(a.Unmap(), binary.BigEndian.Uint16(msg[6:]))}, ok
}
