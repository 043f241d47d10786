package nflog

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/kernel/nfattr"
)

// Attributes of linux/netfilter/nfnetlink_log.h.
const (
	attrIn      = 4
	attrOut     = 5
	attrPayload = 9
	attrPrefix  = 10
	attrUID     = 11
	attrGID     = 14
)

// parse reads the attributes of a packet's message. ok is false where they hold no
// packet of IP.
func parse(attrs []byte) (p Packet, ok bool) {
	found := nfattr.Parse(attrs)
	p.Prefix = nfattr.String(found[attrPrefix])
	if uid, gid := found[attrUID], found[attrGID]; len(uid) == 4 && len(gid) == 4 {
		p.Owner = &Owner{UID: binary.BigEndian.Uint32(uid), GID: binary.BigEndian.Uint32(gid)}
	}
	for attr, to := range map[int]*int{attrIn: &p.In, attrOut: &p.Out} {
		if index := found[attr]; len(index) == 4 {
			*to = int(binary.BigEndian.Uint32(index))
		}
	}
	payload := found[attrPayload]
	if len(payload) == 0 {
		return p, false
	}
	switch payload[0] >> 4 {
	case 4:
		return p, p.ipv4(payload)
	case 6:
		return p, p.ipv6(payload)
	}
	return p, false
}

// ipv4 reads a header of RFC 791 §3.1.
func (p *Packet) ipv4(b []byte) bool {
	const shortest = 20
	length := int(b[0]&0xf) * 4
	if len(b) < shortest || length < shortest {
		return false
	}
	p.Source = netip.AddrFrom4([4]byte(b[12:16]))
	p.Destination = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[16:20])), 0)
	p.Protocol = b[9]
	if later := binary.BigEndian.Uint16(b[6:])&0x1fff != 0; !later && length <= len(b) {
		p.transport(b[length:])
	}
	return true
}

// ipv6 reads a header of RFC 8200 §3 and the extension headers behind it, as far as
// the packet was handed over.
func (p *Packet) ipv6(b []byte) bool {
	const fixed = 40
	if len(b) < fixed {
		return false
	}
	p.Source = netip.AddrFrom16([16]byte(b[8:24]))
	p.Destination = netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[24:40])), 0)
	next, rest := b[6], b[fixed:]
	for extension(next) && len(rest) >= 8 {
		length := 8 + int(rest[1])*8
		switch next {
		case unix.IPPROTO_FRAGMENT:
			if binary.BigEndian.Uint16(rest[2:])&^7 != 0 { // what follows is no header
				p.Protocol = rest[0]
				return true
			}
			length = 8
		case unix.IPPROTO_AH: // RFC 4302 §2.2
			length = 8 + int(rest[1])*4
		}
		next, rest = rest[0], rest[min(length, len(rest)):]
	}
	p.Protocol = next
	p.transport(rest)
	return true
}

func extension(next byte) bool {
	switch next {
	case unix.IPPROTO_HOPOPTS, unix.IPPROTO_ROUTING, unix.IPPROTO_FRAGMENT, unix.IPPROTO_AH, unix.IPPROTO_DSTOPTS:
		return true
	}
	return false
}

// transport reads the ports or the type behind the IP headers.
func (p *Packet) transport(b []byte) {
	switch p.Protocol {
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP, unix.IPPROTO_UDPLITE, unix.IPPROTO_DCCP:
		if len(b) >= 4 {
			p.SourcePort = binary.BigEndian.Uint16(b)
			p.Destination = netip.AddrPortFrom(p.Destination.Addr(), binary.BigEndian.Uint16(b[2:]))
		}
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		if len(b) > 0 {
			p.Type = b[0]
		}
	}
}
