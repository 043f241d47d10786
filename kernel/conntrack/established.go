package conntrack

import (
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// timeouts are for how long the kernel keeps a connection after a packet, 0 where that is not
// known.
type timeouts struct {
	byProtocol                   map[uint8]time.Duration
	tcpUnacked, tcpRetransmitted time.Duration
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
	udp := read("udp_timeout_stream")
	return timeouts{
		byProtocol: map[uint8]time.Duration{
			unix.IPPROTO_TCP: read("tcp_timeout_established"), unix.IPPROTO_UDP: udp, unix.IPPROTO_UDPLITE: udp,
			unix.IPPROTO_SCTP: read("sctp_timeout_established"), unix.IPPROTO_GRE: read("gre_timeout_stream"),
		},
		tcpUnacked: read("tcp_timeout_unacknowledged"), tcpRetransmitted: read("tcp_timeout_max_retrans"),
	}
}

// idle tells how much less time is left than the last packet gave the connection (see
// nf_conntrack_proto_*.c), 0 where that is not known.
func (c *tracked) idle(t timeouts) time.Duration {
	given := t.byProtocol[c.Protocol]
	if c.Protocol == unix.IPPROTO_TCP && c.unacked {
		least := min(given, t.tcpUnacked)
		if c.left > least { // retransmitted several times
			least = min(given, t.tcpRetransmitted)
		}
		given = least
	}
	if c.Offloaded || given == 0 || c.left > given {
		return 0
	}
	return given - c.left
}
