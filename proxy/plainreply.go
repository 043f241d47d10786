package proxy

import (
	"encoding/binary"
	"net/netip"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
)

// plainReply is an upstream's reply on the wire of the plain kind, as most are that
// open something: the addresses of the question's name, or of the name that its
// CNAMEs lead to one after the other, and no other record from which a client could
// take an address. What is not plain is for Check.
type plainReply struct {
	wire  []byte // without the OPT record
	addrs []Address
	chain []policy.Name
	ttls  []recordTTL
	spelt bool // an owner spells the question's name out, in the upstream's way
	room  [nameMost]byte
}

// recordTTL is where a record's TTL stands.
type recordTTL struct {
	at      uint16
	address int16 // of which of addrs, -1 for another record
	answer  bool  // in the answer section
}

// read reads a reply to the question for A or AAAA records of the name, with at
// most most addresses, and puts its TTLs within the bounds. It keeps nothing of
// the packet but wire, which is a part of it.
func (r *plainReply) read(packet []byte, n policy.Name, qtype uint16, most int, bounds []ttlBounds) bool {
	r.addrs, r.chain, r.ttls, r.wire, r.spelt = r.addrs[:0], r.chain[:0], r.ttls[:0], nil, false
	// A response to a standard query, whole, NOERROR.
	if len(packet) < headerBytes || packet[2]&0xfa != 0x80 || packet[3]&0x0f != dns.RcodeSuccess {
		return false
	}
	at := questionBytes(packet)
	if at == 0 {
		return false
	}
	w := walk{packet: packet, at: at, name: n, nameAt: headerBytes, ttl: maxTTL, bounds: bounds}
	for range binary.BigEndian.Uint16(packet[6:]) {
		if !r.answerRecord(&w, qtype, most) {
			return false
		}
	}
	for range binary.BigEndian.Uint16(packet[8:]) {
		if !r.otherRecord(&w) {
			return false
		}
	}
	r.wire = packet[:w.at]
	extra := binary.BigEndian.Uint16(packet[10:])
	if extra == 1 {
		// The root's OPT without options, and without an extended response code.
		rest := packet[w.at:]
		return len(rest) == optBytes && string(rest[:3]) == "\x00\x00\x29" && rest[5] == 0 && string(rest[9:]) == "\x00\x00" && len(r.addrs) > 0
	}
	return extra == 0 && w.at == len(packet) && len(r.addrs) > 0
}

// copyFrom makes it say the same as another, whose wire it shares.
func (r *plainReply) copyFrom(o *plainReply) {
	r.wire, r.spelt = o.wire, o.spelt
	r.addrs, r.chain, r.ttls = append(r.addrs[:0], o.addrs...), append(r.chain[:0], o.chain...), append(r.ttls[:0], o.ttls...)
}

// reset lets go of what it points at.
func (r *plainReply) reset() {
	r.wire = nil
	clear(r.chain)
}

// ttlBounds are the least and the greatest that a TTL may be, in seconds.
type ttlBounds struct{ least, greatest uint32 }

// walk is how far a reply has been read, and where its CNAMEs have led.
type walk struct {
	packet []byte
	at     int
	name   policy.Name // that the question has led to
	nameAt int         // where it stands in the packet
	ttl    uint32      // the least on the way
	bounds []ttlBounds
}

// record is a record's fixed part.
type record struct {
	kind   uint16
	data   int // where it begins
	end    int
	ttl    uint32
	ttlAt  int
	ofName bool // its owner is the name that the question has led to
	spelt  bool // and is spelled out
}

func (w *walk) record(room []byte) (rec record, ok bool) {
	next := skipName(w.packet, w.at)
	if next == 0 || next+10 > len(w.packet) {
		return rec, false
	}
	rec.ofName, rec.spelt = w.isName(w.at, next, room)
	rec.kind, rec.ttlAt, rec.data = binary.BigEndian.Uint16(w.packet[next:]), next+4, next+10
	rec.end = rec.data + int(binary.BigEndian.Uint16(w.packet[next+8:]))
	if rec.end > len(w.packet) || binary.BigEndian.Uint16(w.packet[next+2:]) != dns.ClassINET {
		return rec, false
	}
	rec.ttl = plainTTL(binary.BigEndian.Uint32(w.packet[rec.ttlAt:]))
	for _, b := range w.bounds {
		rec.ttl = min(max(rec.ttl, b.least), b.greatest)
	}
	binary.BigEndian.PutUint32(w.packet[rec.ttlAt:], rec.ttl)
	w.at = rec.end
	return rec, true
}

// isName tells whether the name at a place is the one that the question has led
// to, and whether it is spelled out. Nearly always it is a pointer to where that stands.
func (w *walk) isName(at, next int, room []byte) (is, spelt bool) {
	if next == at+2 && w.packet[at] >= 0xc0 && int(binary.BigEndian.Uint16(w.packet[at:])&0x3fff) == w.nameAt {
		return true, false
	}
	n, ok := expand(w.packet, at, room)
	return ok && string(n) == string(w.name), true
}

func (r *plainReply) answerRecord(w *walk, qtype uint16, most int) bool {
	rec, ok := w.record(r.room[:0])
	if !ok || !rec.ofName {
		return false
	}
	r.spelt = r.spelt || rec.spelt
	switch {
	case rec.kind == dns.TypeCNAME && len(r.addrs) == 0 && len(r.chain) < maxChain:
		n, ok := expand(w.packet, rec.data, r.room[:0])
		if !ok || skipName(w.packet, rec.data) != rec.end {
			return false
		}
		w.name, w.nameAt, w.ttl = policy.Name(n), rec.data, min(w.ttl, rec.ttl)
		r.chain = append(r.chain, w.name)
		r.ttls = append(r.ttls, recordTTL{uint16(rec.ttlAt), -1, true})
		return true
	case rec.kind != qtype || len(r.addrs) >= most:
		return false
	}
	a, ok := netip.AddrFromSlice(w.packet[rec.data:rec.end])
	if !ok || a.Is4() != (qtype == dns.TypeA) {
		return false
	}
	r.ttls = append(r.ttls, recordTTL{uint16(rec.ttlAt), int16(len(r.addrs)), true})
	r.addrs = append(r.addrs, Address{Addr: a.Unmap(), TTL: min(w.ttl, rec.ttl)})
	return true
}

// otherRecord reads a record of the authority section.
func (r *plainReply) otherRecord(w *walk) bool {
	rec, ok := w.record(r.room[:0])
	if !ok || rec.kind != dns.TypeSOA && rec.kind != dns.TypeNS {
		return false
	}
	r.ttls = append(r.ttls, recordTTL{uint16(rec.ttlAt), -1, false})
	return true
}

// least is the least TTL of all records.
func (r *plainReply) least() uint32 {
	least := uint32(maxTTL)
	for _, t := range r.ttls {
		least = min(least, binary.BigEndian.Uint32(r.wire[t.at:]))
	}
	return least
}

// expand appends the name at a place as a policy.Name has it. Not ok: it does not
// end, or is longer than a name can be.
func expand(packet []byte, at int, room []byte) (name []byte, ok bool) {
	for jumps := 0; at < len(packet) && jumps < 2*maxChain; {
		switch n := int(packet[at]); {
		case n == 0:
			return room, true
		case n >= 0xc0:
			if at+2 > len(packet) {
				return nil, false
			}
			at = int(binary.BigEndian.Uint16(packet[at:]) & 0x3fff)
			jumps++
		case n > 63 || at+1+n > len(packet) || len(room)+1+n >= nameMost:
			return nil, false
		default:
			for _, c := range packet[at : at+1+n] {
				room = append(room, fold(c)) // the length is below 64, so folding leaves it alone
			}
			at += 1 + n
		}
	}
	return nil, false
}

// appendTo appends the reply for a client that asked by q: with its id and
// spelling, no address for longer than the way to it holds, and none for longer
// than longest, in seconds.
func (r *plainReply) appendTo(out []byte, q *quick, longest uint32) []byte {
	out = append(out, r.wire...)
	out[0], out[1] = q.packet[0], q.packet[1]
	out[2] = out[2]&0x84 | q.packet[2]&0x01 // QR and AA; RD as it was asked
	ad := byte(0)
	if q.flags&(flagAD|flagDO) != 0 {
		ad = 0x20 // RFC 6840 §5.8
	}
	out[3] = out[3]&(0x80|ad) | q.packet[3]&0x10 // RA and AD; CD as it was asked
	copy(out[headerBytes:], q.packet[headerBytes:q.end])
	for _, t := range r.ttls {
		if !t.answer {
			continue
		}
		ttl := min(binary.BigEndian.Uint32(out[t.at:]), longest)
		if t.address >= 0 {
			ttl = min(ttl, r.addrs[t.address].TTL)
		}
		binary.BigEndian.PutUint32(out[t.at:], ttl)
	}
	out[10], out[11] = 0, 0
	if q.edns {
		out[11] = 1
		out = append(out, 0, 0, byte(dns.TypeOPT))
		out = binary.BigEndian.AppendUint16(out, advertised)
		out = append(out, 0, 0, byte(q.flags&flagDO)<<4, 0, 0, 0) // DO is the top bit
	}
	return out
}
