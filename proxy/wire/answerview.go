package wire

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/policy/fqdn"
)

// Address is one address of an answer.
type Address struct {
	Addr netip.Addr // unmapped
	// TTL in seconds is the least on the way from the question to the address.
	TTL uint32
	// Record is the index of its record in the answer section.
	Record int
}

// AnswerView is a plain answer, as most are that open something, read in place: the
// addresses of the question's name, or of the name that its CNAMEs lead to one after the
// other, and no other record from which a client could take an address.
type AnswerView struct {
	// Message is the answer without its OPT record.
	Message []byte
	Addrs   []Address
	Chain   []fqdn.Name // the targets of the CNAMEs, in order
	ttls    []recordTTL
	spelled bool // an owner spells the question's name out, in the upstream's way
	room    [MaxName]byte
	own     []byte // for Message
}

// TTLBounds are the least and the greatest TTL in seconds.
type TTLBounds struct{ Min, Max uint32 }

// recordTTL is the place of a record's TTL.
type recordTTL struct {
	at      uint16
	address int16 // the index in Addrs, -1 for another record
	answer  bool  // in the answer section
	ttl     uint32
}

// Parse reads an answer to a question for A or AAAA records, with at most maxAddrs
// addresses, and puts its TTLs within each of the bounds. Message is a part of the packet
// and nothing else refers to it. False: it is not plain, and is as it was.
func (v *AnswerView) Parse(packet []byte, q Question, maxAddrs int, bounds []TTLBounds) bool {
	v.Addrs, v.Chain, v.ttls, v.Message, v.spelled = v.Addrs[:0], v.Chain[:0], v.ttls[:0], nil, false
	if q.Type != typeA && q.Type != typeAAAA {
		return false
	}
	// A response to a standard query, whole, NOERROR.
	if len(packet) < HeaderBytes || packet[2]&0xfa != 0x80 || packet[3]&0x0f != 0 {
		return false
	}
	at := QuestionEnd(packet)
	if at == 0 {
		return false
	}
	w := walk{packet: packet, at: at, question: q, name: q.Name, nameAt: HeaderBytes, ttl: MaxTTL, bounds: bounds}
	for i := range binary.BigEndian.Uint16(packet[6:]) {
		if !v.answerRecord(&w, int(i), maxAddrs) {
			return false
		}
	}
	for range binary.BigEndian.Uint16(packet[8:]) {
		if !v.otherRecord(&w) {
			return false
		}
	}
	if len(v.Addrs) == 0 || !plainEnd(packet[w.at:], binary.BigEndian.Uint16(packet[10:])) {
		return false
	}
	v.Message = packet[:w.at]
	for _, t := range v.ttls {
		binary.BigEndian.PutUint32(v.Message[t.at:], t.ttl)
	}
	return true
}

// plainEnd tells whether the additional section, of so many records, is empty or the
// root's OPT without options, and without an extended response code.
func plainEnd(rest []byte, records uint16) bool {
	if records == 0 {
		return len(rest) == 0
	}
	return records == 1 && len(rest) == OPTBytes && string(rest[:3]) == "\x00\x00\x29" && rest[5] == 0 && string(rest[9:]) == "\x00\x00"
}

// Own gives the view a message of its own instead of the packet, until Reset. It counts no
// additional record.
func (v *AnswerView) Own() {
	v.own = append(v.own[:0], v.Message...)
	v.Message = v.own
	v.Message[10], v.Message[11] = 0, 0
}

// CopyFrom makes the view equal to another, with a message of its own.
func (v *AnswerView) CopyFrom(o *AnswerView) {
	v.own = append(v.own[:0], o.Message...)
	v.Message, v.spelled = v.own, o.spelled
	v.Addrs, v.Chain, v.ttls = append(v.Addrs[:0], o.Addrs...), append(v.Chain[:0], o.Chain...), append(v.ttls[:0], o.ttls...)
}

// Reset drops the view's references.
func (v *AnswerView) Reset() {
	v.Message = nil
	clear(v.Chain)
}

// walk is the state of Parse: how far the packet is read, and where its CNAMEs lead.
type walk struct {
	packet   []byte
	at       int
	question Question
	name     fqdn.Name // the target of the last CNAME, or the question's name
	nameAt   int       // its place in the packet
	ttl      uint32    // the least on the way
	bounds   []TTLBounds
}

// record is a record's fixed part.
type record struct {
	kind   uint16
	data   int // where it begins
	end    int
	ttl    uint32
	ofName bool // its owner is the walk's name
}

// record reads the record at which the walk is, but for its data.
func (v *AnswerView) record(w *walk, answer bool) (rec record, ok bool) {
	next, ofName, ok := v.owner(w, answer)
	if !ok || next+10 > len(w.packet) {
		return rec, false
	}
	rec = record{kind: binary.BigEndian.Uint16(w.packet[next:]), data: next + 10, ofName: ofName}
	rec.end = rec.data + int(binary.BigEndian.Uint16(w.packet[next+8:]))
	if rec.end > len(w.packet) || binary.BigEndian.Uint16(w.packet[next+2:]) != classINET {
		return rec, false
	}
	rec.ttl = ValidTTL(binary.BigEndian.Uint32(w.packet[next+4:]))
	for _, b := range w.bounds {
		rec.ttl = min(max(rec.ttl, b.Min), b.Max)
	}
	v.ttls = append(v.ttls, recordTTL{uint16(next + 4), -1, answer, rec.ttl})
	w.at = rec.end
	return rec, true
}

// owner returns where the owner of the record ends, and whether it is the walk's name.
// Nearly always it is a pointer to that.
func (v *AnswerView) owner(w *walk, answer bool) (next int, ofName, ok bool) {
	p := w.packet
	if w.at+2 <= len(p) && p[w.at] >= 0xc0 && int(binary.BigEndian.Uint16(p[w.at:])&0x3fff) == w.nameAt {
		return w.at + 2, true, true
	}
	n, next, ok := v.expand(p, w.at)
	v.spelled = v.spelled || answer
	return next, string(n) == string(w.name), ok
}

func (v *AnswerView) answerRecord(w *walk, index, maxAddrs int) bool {
	rec, ok := v.record(w, true)
	if !ok || !rec.ofName {
		return false
	}
	switch {
	case rec.kind == typeCNAME && len(v.Addrs) == 0 && len(v.Chain) < MaxChain:
		n, end, ok := v.expand(w.packet, rec.data)
		to := fqdn.Name(n)
		if !ok || end != rec.end || to == w.question.Name || slices.Contains(v.Chain, to) {
			return false
		}
		w.name, w.nameAt, w.ttl = to, rec.data, min(w.ttl, rec.ttl)
		v.Chain = append(v.Chain, to)
		return true
	case rec.kind != w.question.Type || len(v.Addrs) >= maxAddrs:
		return false
	}
	a, ok := netip.AddrFromSlice(w.packet[rec.data:rec.end])
	if !ok || a.Is4() != (w.question.Type == typeA) {
		return false
	}
	v.ttls[len(v.ttls)-1].address = int16(len(v.Addrs))
	v.Addrs = append(v.Addrs, Address{Addr: a.Unmap(), TTL: min(w.ttl, rec.ttl), Record: index})
	return true
}

// soaNumbers is the length of an SOA record's data behind its names (RFC 1035 §3.3.13).
const soaNumbers = 20

// otherRecord reads a record of the authority section.
func (v *AnswerView) otherRecord(w *walk) bool {
	rec, ok := v.record(w, false)
	if !ok || rec.kind != typeSOA && rec.kind != typeNS {
		return false
	}
	_, end, ok := v.expand(w.packet, rec.data)
	if ok && rec.kind == typeSOA {
		_, end, ok = v.expand(w.packet, end)
		end += soaNumbers
	}
	return ok && end == rec.end
}

// MinTTL returns the least TTL of all records.
func (v *AnswerView) MinTTL() uint32 {
	least := uint32(MaxTTL)
	for _, t := range v.ttls {
		least = min(least, t.ttl)
	}
	return least
}

// expand returns the name at an offset as a fqdn.Name has it, in room, and where it ends.
// Not ok: it does not end, is longer than a name can be, or points anywhere but to
// earlier, unchanged parts of the message.
func (v *AnswerView) expand(packet []byte, at int) (name []byte, end int, ok bool) {
	name = v.room[:0]
	before := len(packet)
	for jumps := 0; at >= HeaderBytes && at < before && jumps < 2*MaxChain; {
		n, size := int(packet[at]), 1+int(packet[at])
		if n >= 0xc0 {
			size = 2
		}
		if n > 63 && n < 0xc0 || at+size > before || v.overTTL(at, at+size) {
			return nil, 0, false
		}
		if jumps == 0 {
			end = at + size
		}
		switch {
		case n == 0:
			return name, end, true
		case n >= 0xc0:
			before, at = at, int(binary.BigEndian.Uint16(packet[at:])&0x3fff)
			jumps++
		case len(name)+size >= MaxName:
			return nil, 0, false
		default:
			for _, c := range packet[at : at+size] {
				name = append(name, fold(c))
			}
			at += size
		}
	}
	return nil, 0, false
}

// overTTL tells whether a TTL is between two offsets.
func (v *AnswerView) overTTL(from, to int) bool {
	return slices.ContainsFunc(v.ttls, func(t recordTTL) bool { return from < int(t.at)+4 && int(t.at) < to })
}

// Fits tells whether AppendReply's reply is short enough for the client, and spelled as
// the client spells.
func (v *AnswerView) Fits(q *QueryView) bool {
	size := len(v.Message)
	if q.EDNS {
		size += OPTBytes
	}
	return size <= q.Limit && !(v.spelled && q.mixed())
}

// AppendReply appends the answer as a reply to a client's query.
func (v *AnswerView) AppendReply(out []byte, q *QueryView) []byte {
	out = append(out, v.Message...)
	q.Address(out)
	out[2] = out[2]&0x84 | q.Packet[2]&0x01 // QR and AA; RD as it was asked
	ad := byte(0)
	if q.Flags&(AD|DO) != 0 {
		ad = 0x20 // RFC 6840 §5.8
	}
	out[3] = out[3]&(0x80|ad) | q.Packet[3]&0x10 // RA and AD; CD as it was asked
	out[10], out[11] = 0, 0
	if q.EDNS {
		out[11] = 1
		out = appendOPT(out, q.Flags)
	}
	return out
}

// LowerTTLs lowers the TTLs of the answer section in a reply of AppendReply: that of an
// address to the least on the way to it, and each to longest, in seconds.
func (v *AnswerView) LowerTTLs(reply []byte, longest uint32) {
	for _, t := range v.ttls {
		if !t.answer {
			continue
		}
		ttl := min(t.ttl, longest)
		if t.address >= 0 {
			ttl = min(ttl, v.Addrs[t.address].TTL)
		}
		binary.BigEndian.PutUint32(reply[t.at:], ttl)
	}
}
