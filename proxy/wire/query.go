package wire

import (
	"encoding/binary"
	"slices"

	"github.com/namegate/namegate/policy/fqdn"
)

// Question is the question of a query.
type Question struct {
	Name        fqdn.Name
	Type, Class uint16 // RFC 1035 §3.2.2 and §3.2.4
}

// Flags are the bits of a query that its answer depends on.
type Flags uint8

// The bits.
const (
	RD Flags = 1 << iota // recursion desired
	CD                   // checking disabled: the client validates itself
	AD                   // authentic data: the client understands AD (RFC 6840 §5.7)
	DO                   // DNSSEC OK, in the OPT record
)

// If returns the flags where on is true, else none.
func (f Flags) If(on bool) Flags {
	if on {
		return f
	}
	return 0
}

// Query is all of a client's query that an upstream gets to see. Equal queries have
// equal answers.
type Query struct {
	Question
	Flags Flags
	// Options are the EDNS options for the upstream, on the wire. An answer to a query
	// with options is for its client alone.
	Options string
}

// Pack returns the query on the wire, with an OPT record.
func (q Query) Pack(id uint16) []byte { return q.AppendTo(nil, id) }

// AppendTo is Pack into an empty slice.
func (q Query) AppendTo(b []byte, id uint16) []byte {
	b = slices.Grow(b, q.QuestionEnd()+OPTBytes+len(q.Options))
	b = append(b, make([]byte, HeaderBytes)...)
	binary.BigEndian.PutUint16(b, id)
	if q.Flags&RD != 0 {
		b[2] |= 0x01
	}
	if q.Flags&AD != 0 {
		b[3] |= 0x20
	}
	if q.Flags&CD != 0 {
		b[3] |= 0x10
	}
	b[5], b[11] = 1, 1 // one question, one additional record
	b = append(b, q.Name...)
	b = append(b, 0)
	b = binary.BigEndian.AppendUint16(b, q.Type)
	b = binary.BigEndian.AppendUint16(b, q.Class)
	b = appendOPT(b, q.Flags)
	binary.BigEndian.PutUint16(b[len(b)-2:], uint16(len(q.Options)))
	return append(b, q.Options...)
}

// PackWithoutEDNS returns the query on the wire without an OPT record, and so without DO.
func (q Query) PackWithoutEDNS(id uint16) []byte { return q.WithoutEDNS(q.Pack(id)) }

// WithoutEDNS takes the OPT record out of the packed query.
func (q Query) WithoutEDNS(packed []byte) []byte {
	packed[11] = 0
	return packed[:q.QuestionEnd()]
}

// QuestionEnd returns where the question of the packed query ends.
func (q Query) QuestionEnd() int { return HeaderBytes + len(q.Name) + 1 + 4 }

// appendOPT appends an OPT record without options (RFC 6891 §6.1.2).
func appendOPT(b []byte, f Flags) []byte {
	b = append(b, 0, 0, typeOPT, AdvertisedSize>>8, AdvertisedSize&0xff)
	return append(b, 0, 0, byte(f&DO)<<4, 0, 0, 0) // DO is the top bit
}

// Answers tells whether reply answers the packed query whose question ends at end: it
// has the same id and question, letters of either case, or is a bare FORMERR.
func Answers(query, reply []byte, end int) bool {
	return echoes(query, reply, end) || bareFormatError(query, reply)
}

func echoes(query, reply []byte, end int) bool {
	if len(reply) < end || reply[0] != query[0] || reply[1] != query[1] || reply[2]&0x80 == 0 {
		return false
	}
	if reply[4] != 0 || reply[5] != 1 {
		return false
	}
	for i := HeaderBytes; i < end-4; i++ {
		if fold(query[i]) != fold(reply[i]) {
			return false
		}
	}
	return string(query[end-4:end]) == string(reply[end-4:end])
}

// bareFormatError tells whether the reply is a header that says FORMERR and nothing
// else, as of servers that do not understand EDNS.
func bareFormatError(query, reply []byte) bool {
	return len(reply) == HeaderBytes && reply[0] == query[0] && reply[1] == query[1] &&
		reply[2]&0x80 != 0 && reply[3]&0x0f == 1 && string(reply[4:]) == string(make([]byte, 8))
}
