package proxy

import (
	"encoding/binary"

	"github.com/miekg/dns"
)

// quick is a query of the plain kind, as nearly all are: one question and at
// most one further record, an OPT that asks for nothing that the answer would
// depend on. It is read in place; what is not plain goes the long way.
type quick struct {
	packet []byte
	end    int // of the question
	flags  askFlags
	edns   bool
	most   int // how long a reply over UDP the client takes
}

// optBytes is the length of an OPT record without options (RFC 6891 §6.1.2).
const optBytes = 11

// readQuick reads a packet that isQuery; not ok is no judgement on it.
func readQuick(packet []byte) (q quick, ok bool) {
	// Of the flags only RD, AD and CD may be set; one question, at most one OPT.
	if packet[2]&^0x01 != 0 || packet[3]&^0x30 != 0 || string(packet[4:11]) != "\x00\x01\x00\x00\x00\x00\x00" || packet[11] > 1 {
		return q, false
	}
	q = quick{packet: packet, end: questionBytes(packet), most: dns.MinMsgSize}
	if q.end == 0 || q.end-headerBytes > nameMost+4 {
		return q, false
	}
	q.flags = flagIf(flagRD, packet[2]&0x01 != 0) | flagIf(flagAD, packet[3]&0x20 != 0) | flagIf(flagCD, packet[3]&0x10 != 0)
	if packet[11] == 0 {
		return q, len(packet) == q.end
	}
	return q, q.readOPT(packet[q.end:])
}

// nameMost is the longest name on the wire (RFC 1035 §2.3.4).
const nameMost = 255

func (q *quick) readOPT(opt []byte) bool {
	if len(opt) < optBytes || opt[0] != 0 || binary.BigEndian.Uint16(opt[1:]) != dns.TypeOPT {
		return false
	}
	// The extended response code and the version are zero, of the flags only DO may be set.
	if opt[5] != 0 || opt[6] != 0 || opt[7]&0x7f != 0 || opt[8] != 0 {
		return false
	}
	if len(opt) != optBytes+int(binary.BigEndian.Uint16(opt[9:])) {
		return false
	}
	for options := opt[optBytes:]; len(options) > 0; {
		if len(options) < 4 {
			return false
		}
		// Keepalive has no place over UDP (RFC 7828 §3.2.1).
		if code := binary.BigEndian.Uint16(options); code != dns.EDNS0COOKIE && code != dns.EDNS0PADDING {
			return false
		}
		n := 4 + int(binary.BigEndian.Uint16(options[2:]))
		if n > len(options) {
			return false
		}
		options = options[n:]
	}
	q.edns = true
	q.flags |= flagIf(flagDO, opt[7]&0x80 != 0)
	q.most = udpLimit(binary.BigEndian.Uint16(opt[3:]))
	return true
}

// appendKey appends the key under which the answer to the query is kept: that of
// its ask.
func (q *quick) appendKey(b []byte) []byte {
	for _, c := range q.packet[headerBytes : q.end-5] {
		b = append(b, fold(c)) // lengths of labels are below 64, so folding leaves them alone
	}
	return append(append(b, q.packet[q.end-4:q.end]...), byte(q.flags))
}

// qtype and qclass are the type and the class that are asked for.
func (q *quick) qtype() uint16  { return binary.BigEndian.Uint16(q.packet[q.end-4:]) }
func (q *quick) qclass() uint16 { return binary.BigEndian.Uint16(q.packet[q.end-2:]) }
