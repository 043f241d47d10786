package echo

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"sync/atomic"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// pings counts the pings of the process, from a random number on. Each has an identifier of its
// own: the socket of one gets the replies to all, and the kernel tracks a ping by its addresses and
// identifier.
var (
	pings atomic.Uint32
	first = rand.Uint32()
)

// PingNetwork is the network of the raw socket that Ping needs for an address.
func PingNetwork(to netip.Addr) string {
	if to.Is6() {
		return "ip6:ipv6-icmp"
	}
	return "ip4:icmp"
}

// Ping sends an ICMP echo request to an address and waits for the reply, until the socket's
// deadline.
func Ping(c net.PacketConn, to netip.Addr) error {
	proto := 1
	var request icmp.Type = ipv4.ICMPTypeEcho
	if to.Is6() {
		proto, request = 58, ipv6.ICMPTypeEchoRequest
	}
	id := int((first + pings.Add(1)) & 0xffff)
	m := icmp.Message{Type: request, Body: &icmp.Echo{ID: id, Seq: 1, Data: []byte("hello")}}
	wire, err := m.Marshal(nil)
	if err != nil {
		return err
	}
	if _, err := c.WriteTo(wire, &net.IPAddr{IP: to.AsSlice()}); err != nil {
		return err
	}
	buf := make([]byte, 1500)
	for {
		n, _, err := c.ReadFrom(buf)
		if err != nil {
			return err
		}
		reply, err := icmp.ParseMessage(proto, buf[:n])
		if err != nil {
			continue
		}
		if e, ok := reply.Body.(*icmp.Echo); ok && e.ID == id && reply.Type != request {
			return nil
		}
	}
}
