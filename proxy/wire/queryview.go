package wire

import (
	"encoding/binary"
	"slices"

	"github.com/namegate/namegate/policy/fqdn"
)

// QueryView is a plain query, as nearly all are, read in place: one question and at
// most one further record, an OPT without options that the answer would depend on.
type QueryView struct {
	Packet []byte
	End    int // of the question
	Flags  Flags
	EDNS   bool
	Limit  int // the longest reply over UDP that the client takes, without its cookie
}

// EDNS options that end at the proxy, and that a plain query may have.
const optionCookie, optionPadding = 10, 12

// ParseQuery reads a packet that IsQuery. Not ok: it is not plain, and may be a valid
// query for the parser.
func ParseQuery(packet []byte) (q QueryView, ok bool) {
	// Of the flags only RD, AD and CD may be set; one question, at most one OPT.
	if packet[2]&^0x01 != 0 || packet[3]&^0x30 != 0 || string(packet[4:11]) != "\x00\x01\x00\x00\x00\x00\x00" || packet[11] > 1 {
		return q, false
	}
	q = QueryView{Packet: packet, End: QuestionEnd(packet), Limit: minUDP}
	if q.End == 0 || q.End-HeaderBytes > MaxName+4 {
		return q, false
	}
	q.Flags = RD.If(packet[2]&0x01 != 0) | AD.If(packet[3]&0x20 != 0) | CD.If(packet[3]&0x10 != 0)
	if packet[11] == 0 {
		return q, len(packet) == q.End
	}
	return q, q.readOPT(packet[q.End:])
}

func (q *QueryView) readOPT(opt []byte) bool {
	if len(opt) < OPTBytes || opt[0] != 0 || binary.BigEndian.Uint16(opt[1:]) != typeOPT {
		return false
	}
	// The extended response code and the version are zero, of the flags only DO may be set.
	if opt[5] != 0 || opt[6] != 0 || opt[7]&0x7f != 0 || opt[8] != 0 {
		return false
	}
	if len(opt) != OPTBytes+int(binary.BigEndian.Uint16(opt[9:])) {
		return false
	}
	room := 0
	for options := opt[OPTBytes:]; len(options) > 0; {
		if len(options) < 4 {
			return false
		}
		// Keepalive has no place over UDP (RFC 7828 §3.2.1).
		code := binary.BigEndian.Uint16(options)
		if code != optionCookie && code != optionPadding {
			return false
		}
		n := 4 + int(binary.BigEndian.Uint16(options[2:]))
		if n > len(options) {
			return false
		}
		if code == optionCookie {
			room = CookieRoom
		}
		options = options[n:]
	}
	q.EDNS, q.Limit = true, UDPLimit(binary.BigEndian.Uint16(opt[3:]))-room
	q.Flags |= DO.If(opt[7]&0x80 != 0)
	return true
}

// Type returns the type that is asked for.
func (q *QueryView) Type() uint16 { return binary.BigEndian.Uint16(q.Packet[q.End-4:]) }

// Class returns the class that is asked for.
func (q *QueryView) Class() uint16 { return binary.BigEndian.Uint16(q.Packet[q.End-2:]) }

// AppendName appends the name that is asked for, as a fqdn.Name has it.
func (q *QueryView) AppendName(b []byte) []byte {
	for _, c := range q.Packet[HeaderBytes : q.End-5] {
		b = append(b, fold(c))
	}
	return b
}

// Query returns the query that the packet asks, whose name is n.
func (q *QueryView) Query(n fqdn.Name) Query {
	return Query{Question: Question{Name: n, Type: q.Type(), Class: q.Class()}, Flags: q.Flags}
}

// Address makes a reply to an equal query one to this: it has its id, and spells the
// question as it does.
func (q *QueryView) Address(reply []byte) {
	reply[0], reply[1] = q.Packet[0], q.Packet[1]
	copy(reply[HeaderBytes:], q.Packet[HeaderBytes:q.End])
}

// mixed tells whether the query spells its name with upper case letters.
func (q *QueryView) mixed() bool {
	return slices.ContainsFunc(q.Packet[HeaderBytes:q.End-4], func(c byte) bool { return c != fold(c) })
}
