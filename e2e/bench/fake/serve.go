package fake

import (
	"fmt"
	"net"
	"net/netip"
)

// Respond returns the reply to a packet, made in the buffer to; nil for silence.
type Respond func(to, packet []byte) []byte

// Responders are the servers by the name that they are started with.
var Responders = map[string]Respond{"upstream": Answer, "echo": Echo}

// Echo sends a packet back with the bit set that makes a query a reply.
func Echo(_, packet []byte) []byte {
	if len(packet) < headerSize {
		return nil
	}
	packet[2] |= 0x80
	return packet
}

// receiveBuffer is the bytes of queries that wait in the kernel.
const receiveBuffer = 4 << 20

// Serve answers on a UDP socket until it fails. One goroutine alone: the least that
// a server in Go can cost.
func Serve(at netip.AddrPort, respond Respond) error {
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		return fmt.Errorf("serve at %s: %w", at, err)
	}
	defer c.Close()
	if err := c.SetReadBuffer(receiveBuffer); err != nil {
		return fmt.Errorf("serve at %s: %w", at, err)
	}
	return loop(c, respond)
}

func loop(c *net.UDPConn, respond Respond) error {
	in, out := make([]byte, 4096), make([]byte, 0, 4096)
	for {
		n, from, err := c.ReadFromUDPAddrPort(in)
		if err != nil {
			return fmt.Errorf("serve at %s: %w", c.LocalAddr(), err)
		}
		if reply := respond(out, in[:n]); reply != nil {
			// A client that went away is no matter.
			_, _ = c.WriteToUDPAddrPort(reply, from)
		}
	}
}
