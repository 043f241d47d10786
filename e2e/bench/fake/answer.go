// Package fake has the servers that a benchmark's own side consists of: an
// authoritative server that knows every name, and an echo.
package fake

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
)

// The zones that the server answers for. Every label and number below them exists:
// "n17.w1.new.bench.test" has the 17th address of the zone's range.
const (
	// KeptZone has answers that live long.
	KeptZone = "kept.bench.test"
	// NewZone has answers that live for a second.
	NewZone = "new.bench.test"
)

// TTLs of the zones, in seconds.
const (
	keptTTL = 3000
	newTTL  = 1
)

// The ranges of the zones' addresses: the two halves of 198.18.0.0/15, which is
// set aside for benchmarks.
var (
	keptRange = [2]byte{198, 18}
	newRange  = [2]byte{198, 19}
)

const (
	headerSize = 12
	typeA      = 1
	typeOPT    = 41
	classIN    = 1
	// maxUDP is the size of datagrams that the server takes (RFC 9715).
	maxUDP = 1232
)

// Answer appends the reply to a query and returns it; nil where there is nothing to
// reply to. An A question gets one address, all others NOERROR without records.
func Answer(to, query []byte) []byte {
	end, ok := question(query)
	if !ok {
		return nil
	}
	start := len(to)
	to = append(to, query[:end]...)
	reply := to[start:]
	reply[2] = 0x84 | query[2]&0x01 // QR, AA, RD as asked
	reply[3] = 0x80                 // RA: it stands in for a resolver
	clear(reply[6:headerSize])
	qtype, qclass := binary.BigEndian.Uint16(query[end-4:]), binary.BigEndian.Uint16(query[end-2:])
	if qtype == typeA && qclass == classIN {
		reply[7] = 1
		addr, ttl := record(query[headerSize : end-4])
		to = append(to, 0xc0, headerSize, 0, typeA, 0, classIN)
		to = binary.BigEndian.AppendUint32(to, ttl)
		to = append(to, 0, 4)
		to = append(to, addr[:]...)
	}
	if binary.BigEndian.Uint16(query[10:]) > 0 { // an EDNS query gets an EDNS answer
		to[start+11] = 1
		to = append(to, 0, 0, typeOPT, maxUDP>>8, maxUDP&0xff, 0, 0, 0, 0, 0, 0)
	}
	return to
}

// question returns where the only question of a query ends.
func question(query []byte) (end int, ok bool) {
	if len(query) < headerSize || query[2]&0x80 != 0 || binary.BigEndian.Uint16(query[4:]) != 1 {
		return 0, false
	}
	at := headerSize
	for at < len(query) && query[at] != 0 {
		if query[at] > 63 {
			return 0, false
		}
		at += int(query[at]) + 1
	}
	end = at + 5
	return end, end <= len(query)
}

// record returns the address and the TTL of a name in wire form. The digits of its
// first label choose the address, its zone the range.
func record(name []byte) (addr [4]byte, ttl uint32) {
	first := name[:int(name[0])+1]
	n := 0
	for _, c := range first[1:] {
		if '0' <= c && c <= '9' {
			n = (n*10 + int(c-'0')) % (1 << 24)
		}
	}
	half, ttl := newRange, uint32(newTTL)
	if kept(name) {
		half, ttl = keptRange, keptTTL
	}
	return [4]byte{half[0], half[1], byte(n >> 8), byte(n)}, ttl
}

// keptSuffix is KeptZone in wire form.
var keptSuffix = []byte("\x04kept\x05bench\x04test\x00")

// kept tells whether a name is in KeptZone, whatever its case.
func kept(name []byte) bool {
	at := len(name) - len(keptSuffix)
	if at < 0 {
		return false
	}
	for i, c := range keptSuffix {
		if name[at+i]|0x20 != c|0x20 {
			return false
		}
	}
	return true
}

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
