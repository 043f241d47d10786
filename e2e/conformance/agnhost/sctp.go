package main

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"time"
)

// The chunks of SCTP that make an association (RFC 9260 §3.3).
const (
	sctpInit       = 1
	sctpInitAck    = 2
	sctpAbort      = 6
	sctpCookieEcho = 10
	sctpCookieAck  = 11

	sctpCookie = 7 // the parameter
)

// sctpPacket is a packet of one chunk.
type sctpPacket struct {
	from, to uint16
	tag      uint32 // of the receiver
	chunk    byte
	body     []byte
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (p sctpPacket) bytes() []byte {
	b := binary.BigEndian.AppendUint16(nil, p.from)
	b = binary.BigEndian.AppendUint16(b, p.to)
	b = binary.BigEndian.AppendUint32(b, p.tag)
	b = append(b, 0, 0, 0, 0, p.chunk, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(4+len(p.body)))
	b = append(b, p.body...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, castagnoli))
	return b
}

func readSCTP(b []byte) (p sctpPacket, ok bool) {
	if len(b) < 16 {
		return p, false
	}
	end := 12 + int(binary.BigEndian.Uint16(b[14:]))
	if end < 16 || end > len(b) {
		return p, false
	}
	return sctpPacket{
		from: binary.BigEndian.Uint16(b), to: binary.BigEndian.Uint16(b[2:]), tag: binary.BigEndian.Uint32(b[4:]),
		chunk: b[12], body: b[16:end],
	}, true
}

// initBody is the body of INIT and INIT ACK: one stream each way, and a tag that the peer is
// to send.
func initBody(tag uint32) []byte {
	b := binary.BigEndian.AppendUint32(nil, tag)
	return append(b, 0, 0, 0x10, 0, 0, 1, 0, 1, 0, 0, 0, 1)
}

const initLength = 16

// answer returns the reply of a server. It keeps no state: the tag of the client comes back
// in the cookie.
func (p sctpPacket) answer() (r sctpPacket, ok bool) {
	r = sctpPacket{from: p.to, to: p.from}
	switch {
	case p.chunk == sctpInit && len(p.body) >= initLength:
		r.chunk, r.tag = sctpInitAck, binary.BigEndian.Uint32(p.body)
		r.body = append(initBody(rand.Uint32()|1), 0, sctpCookie, 0, 8)
		r.body = binary.BigEndian.AppendUint32(r.body, r.tag)
	case p.chunk == sctpCookieEcho && len(p.body) == 4:
		r.chunk, r.tag = sctpCookieAck, binary.BigEndian.Uint32(p.body)
	default:
		return r, false
	}
	return r, true
}

// serveSCTP confirms associations to a port, of both families.
func serveSCTP(port string) error {
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return fmt.Errorf("serve SCTP: %w", err)
	}
	for _, at := range [][2]string{{"ip4:132", "0.0.0.0"}, {"ip6:132", "::"}} {
		c, err := net.ListenPacket(at[0], at[1])
		if err != nil {
			return fmt.Errorf("serve SCTP: %w", err)
		}
		go func() {
			buf := make([]byte, 2048)
			for {
				length, from, err := c.ReadFrom(buf)
				if err != nil {
					return
				}
				p, ok := readSCTP(buf[:length])
				if !ok || p.to != uint16(n) {
					continue
				}
				if r, ok := p.answer(); ok {
					_, _ = c.WriteTo(r.bytes(), from)
				}
			}
		}()
	}
	return nil
}

// dialSCTP makes an association and aborts it.
func dialSCTP(to string, deadline time.Time) error {
	addr, err := net.ResolveTCPAddr("tcp", to)
	if err != nil {
		return err
	}
	c, err := net.Dial("ip:132", addr.IP.String())
	if err != nil {
		return err
	}
	defer c.Close()
	mine := rand.Uint32() | 1
	own := sctpPacket{from: uint16(32768 + rand.IntN(28000)), to: uint16(addr.Port)}
	ack, err := own.exchange(c, sctpInit, initBody(mine), mine, deadline)
	if err != nil {
		return err
	}
	// The cookie is the parameter after the fixed fields.
	if ack.chunk != sctpInitAck || len(ack.body) < initLength+4 || ack.body[initLength+1] != sctpCookie {
		return fmt.Errorf("the server answered with chunk %d: %w", ack.chunk, os.ErrInvalid)
	}
	own.tag = binary.BigEndian.Uint32(ack.body)
	if ack, err = own.exchange(c, sctpCookieEcho, ack.body[initLength+4:], mine, deadline); err != nil {
		return err
	}
	if ack.chunk != sctpCookieAck {
		return fmt.Errorf("the server answered with chunk %d: %w", ack.chunk, os.ErrInvalid)
	}
	own.chunk, own.body = sctpAbort, nil
	_, err = c.Write(own.bytes())
	return err
}

// exchange sends a chunk and returns the packet of the association that comes back: its acknowledgement,
// whose number is the next, or an abort.
func (p sctpPacket) exchange(c net.Conn, chunk byte, body []byte, mine uint32, deadline time.Time) (r sctpPacket, err error) {
	p.chunk, p.body = chunk, body
	buf := make([]byte, 2048)
	err = exchange(c, p.bytes(), deadline, func() error {
		for {
			// Read would return the IPv4 header too.
			n, _, err := c.(net.PacketConn).ReadFrom(buf)
			if err != nil {
				return err
			}
			var ok bool
			if r, ok = readSCTP(buf[:n]); ok && r.from == p.to && r.to == p.from && r.tag == mine && (r.chunk == chunk+1 || r.chunk == sctpAbort) {
				return nil
			}
		}
	})
	return r, err
}
