package proxy

import (
	"crypto/rand"
	"encoding/binary"

	"github.com/miekg/dns"
)

// headerBytes is the length of a message's header (RFC 1035 §4.1.1).
const headerBytes = 12

// advertised is the UDP size that the proxy tells its upstreams and clients: the
// greatest that crosses every path in one piece (DNS Flag Day 2020).
const advertised = 1232

// optionsMost bounds the client's options that are passed on, in bytes: with the
// longest name the query still fits into the least datagram that IPv6 must carry.
const optionsMost = 512

// askFlags are the bits of a query that its answer depends on, as they stand in
// the key under which the answer is kept.
type askFlags uint8

const (
	flagRD askFlags = 1 << iota
	flagCD
	flagAD
	flagDO
)

// ask is all of a client's query that an upstream gets to see. Equal asks get
// equal answers, so it is the key of what is in flight and of what is kept.
type ask struct {
	Question
	recurse bool // RD
	check   bool // CD: the client validates itself
	authent bool // AD: the client understands AD (RFC 6840 §5.7)
	dnssec  bool // DO
	// options are those of the client's EDNS options that are not between it and
	// us, on the wire. What is asked with any is not kept.
	options string
}

// askOf returns what a client's query asks.
func askOf(q Question, m *dns.Msg) ask {
	a := ask{Question: q, recurse: m.RecursionDesired, check: m.CheckingDisabled, authent: m.AuthenticatedData}
	if opt := m.IsEdns0(); opt != nil {
		a.dnssec = opt.Do()
		a.options = passedOn(opt)
	}
	return a
}

func (a ask) flags() askFlags {
	return flagIf(flagRD, a.recurse) | flagIf(flagCD, a.check) | flagIf(flagAD, a.authent) | flagIf(flagDO, a.dnssec)
}

func flagIf(f askFlags, on bool) askFlags {
	if on {
		return f
	}
	return 0
}

// keyTail is how many bytes of a key follow its name: type, class and flags.
const keyTail = 5

// appendKey appends the key under which the answer is kept: the name, the type,
// the class and the flags.
func (a ask) appendKey(b []byte) []byte {
	b = append(b, a.Name...)
	b = binary.BigEndian.AppendUint16(b, a.Type)
	b = binary.BigEndian.AppendUint16(b, a.Class)
	return append(b, byte(a.flags()))
}

// wire returns the query on the wire with the id.
func (a ask) wire(id uint16) []byte {
	b := make([]byte, headerBytes, headerBytes+len(a.Name)+1+4+optBytes+len(a.options))
	binary.BigEndian.PutUint16(b, id)
	if a.recurse {
		b[2] |= 0x01
	}
	if a.authent {
		b[3] |= 0x20
	}
	if a.check {
		b[3] |= 0x10
	}
	b[5], b[11] = 1, 1 // one question, one additional record
	b = append(b, a.Name...)
	b = append(b, 0)
	b = binary.BigEndian.AppendUint16(b, a.Type)
	b = binary.BigEndian.AppendUint16(b, a.Class)
	b = append(b, 0, 0, byte(dns.TypeOPT)) // the root's OPT, RFC 6891 §6.1.2
	b = binary.BigEndian.AppendUint16(b, advertised)
	flags := uint32(0)
	if a.dnssec {
		flags = 1 << 15
	}
	b = binary.BigEndian.AppendUint32(b, flags)
	b = binary.BigEndian.AppendUint16(b, uint16(len(a.options)))
	return append(b, a.options...)
}

// plainWire is wire without EDNS: no OPT, and so no DO.
func (a ask) plainWire(id uint16) []byte {
	b := a.wire(id)[:a.questionEnd()]
	b[11] = 0
	return b
}

// questionEnd is where the question of a query that wire made ends.
func (a ask) questionEnd() int { return headerBytes + len(a.Name) + 1 + 4 }

// echoes tells whether reply answers the query on the wire whose question ends
// at end: it is a response with the same id and question, letters of either case.
func echoes(query, reply []byte, end int) bool {
	if len(reply) < end || reply[0] != query[0] || reply[1] != query[1] || reply[2]&0x80 == 0 {
		return false
	}
	if reply[4] != 0 || reply[5] != 1 {
		return false
	}
	for i := headerBytes; i < end-4; i++ {
		// Lengths of labels are below 64, so folding leaves them alone.
		if fold(query[i]) != fold(reply[i]) {
			return false
		}
	}
	return string(query[end-4:end]) == string(reply[end-4:end])
}

func fold(b byte) byte {
	if 'A' <= b && b <= 'Z' {
		return b + 'a' - 'A'
	}
	return b
}

// randomID returns an id that nobody can guess.
func randomID() uint16 {
	var b [2]byte
	_, _ = rand.Read(b[:]) // never fails: see its documentation
	return binary.BigEndian.Uint16(b[:])
}
