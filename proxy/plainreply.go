package proxy

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy/fqdn"
)

// plainReply is an upstream's reply on the wire of the plain kind, as most are that
// open something: the addresses of the question's name, or of the name that its
// CNAMEs lead to one after the other, and no other record from which a client could
// take an address. What is not plain is for Check.
type plainReply struct {
	wire  []byte // without the OPT record
	addrs []Address
	chain []fqdn.Name
	ttls  []recordTTL
	spelt bool // an owner spells the question's name out, in the upstream's way
	room  [nameMost]byte
}

// recordTTL is where a record's TTL stands.
type recordTTL struct {
	at      uint16
	address int16 // of which of addrs, -1 for another record
	answer  bool  // in the answer section
	ttl     uint32
}

// read reads a reply to the question for A or AAAA records of the name, with at
// most most addresses, and puts its TTLs within the bounds. It keeps nothing of
// the packet but wire, which is a part of it; what is not plain stays as it is.
func (r *plainReply) read(packet []byte, n fqdn.Name, qtype uint16, most int, bounds []ttlBounds) bool {
	r.addrs, r.chain, r.ttls, r.wire, r.spelt = r.addrs[:0], r.chain[:0], r.ttls[:0], nil, false
	// A response to a standard query, whole, NOERROR.
	if len(packet) < headerBytes || packet[2]&0xfa != 0x80 || packet[3]&0x0f != dns.RcodeSuccess {
		return false
	}
	at := questionBytes(packet)
	if at == 0 {
		return false
	}
	w := walk{packet: packet, at: at, asked: n, name: n, nameAt: headerBytes, ttl: maxTTL, bounds: bounds}
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
	if len(r.addrs) == 0 || !plainEnd(packet[w.at:], binary.BigEndian.Uint16(packet[10:])) {
		return false
	}
	r.wire = packet[:w.at]
	for _, t := range r.ttls {
		binary.BigEndian.PutUint32(r.wire[t.at:], t.ttl)
	}
	return true
}

// plainEnd tells whether the additional section, of so many records, is empty or the
// root's OPT without options, and without an extended response code.
func plainEnd(rest []byte, records uint16) bool {
	if records == 0 {
		return len(rest) == 0
	}
	return records == 1 && len(rest) == optBytes && string(rest[:3]) == "\x00\x00\x29" && rest[5] == 0 && string(rest[9:]) == "\x00\x00"
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
	asked  fqdn.Name
	name   fqdn.Name // that the question has led to
	nameAt int       // where it stands in the packet
	ttl    uint32    // the least on the way
	bounds []ttlBounds
}

// record is a record's fixed part.
type record struct {
	kind   uint16
	data   int // where it begins
	end    int
	ttl    uint32
	ofName bool // its owner is the name that the question has led to
}

// record reads the record at which the walk is, but for its data.
func (r *plainReply) record(w *walk, answer bool) (rec record, ok bool) {
	next, ofName, ok := r.owner(w, answer)
	if !ok || next+10 > len(w.packet) {
		return rec, false
	}
	rec = record{kind: binary.BigEndian.Uint16(w.packet[next:]), data: next + 10, ofName: ofName}
	rec.end = rec.data + int(binary.BigEndian.Uint16(w.packet[next+8:]))
	if rec.end > len(w.packet) || binary.BigEndian.Uint16(w.packet[next+2:]) != dns.ClassINET {
		return rec, false
	}
	rec.ttl = plainTTL(binary.BigEndian.Uint32(w.packet[next+4:]))
	for _, b := range w.bounds {
		rec.ttl = min(max(rec.ttl, b.least), b.greatest)
	}
	r.ttls = append(r.ttls, recordTTL{uint16(next + 4), -1, answer, rec.ttl})
	w.at = rec.end
	return rec, true
}

// owner returns where the owner of the record ends, and whether it is the name that
// the question has led to. Nearly always it is a pointer to where that stands.
func (r *plainReply) owner(w *walk, answer bool) (next int, ofName, ok bool) {
	p := w.packet
	if w.at+2 <= len(p) && p[w.at] >= 0xc0 && int(binary.BigEndian.Uint16(p[w.at:])&0x3fff) == w.nameAt {
		return w.at + 2, true, true
	}
	n, next, ok := r.expand(p, w.at)
	r.spelt = r.spelt || answer
	return next, string(n) == string(w.name), ok
}

func (r *plainReply) answerRecord(w *walk, qtype uint16, most int) bool {
	rec, ok := r.record(w, true)
	if !ok || !rec.ofName {
		return false
	}
	switch {
	case rec.kind == dns.TypeCNAME && len(r.addrs) == 0 && len(r.chain) < maxChain:
		n, end, ok := r.expand(w.packet, rec.data)
		to := fqdn.Name(n)
		if !ok || end != rec.end || to == w.asked || slices.Contains(r.chain, to) {
			return false
		}
		w.name, w.nameAt, w.ttl = to, rec.data, min(w.ttl, rec.ttl)
		r.chain = append(r.chain, to)
		return true
	case rec.kind != qtype || len(r.addrs) >= most:
		return false
	}
	a, ok := netip.AddrFromSlice(w.packet[rec.data:rec.end])
	if !ok || a.Is4() != (qtype == dns.TypeA) {
		return false
	}
	r.ttls[len(r.ttls)-1].address = int16(len(r.addrs))
	r.addrs = append(r.addrs, Address{Addr: a.Unmap(), TTL: min(w.ttl, rec.ttl)})
	return true
}

// soaNumbers is the length of an SOA record's data behind its names (RFC 1035 §3.3.13).
const soaNumbers = 20

// otherRecord reads a record of the authority section.
func (r *plainReply) otherRecord(w *walk) bool {
	rec, ok := r.record(w, false)
	if !ok || rec.kind != dns.TypeSOA && rec.kind != dns.TypeNS {
		return false
	}
	_, end, ok := r.expand(w.packet, rec.data)
	if ok && rec.kind == dns.TypeSOA {
		_, end, ok = r.expand(w.packet, end)
		end += soaNumbers
	}
	return ok && end == rec.end
}

// least is the least TTL of all records.
func (r *plainReply) least() uint32 {
	least := uint32(maxTTL)
	for _, t := range r.ttls {
		least = min(least, t.ttl)
	}
	return least
}

// expand returns the name at a place as a fqdn.Name has it, in room, and where
// it ends. Not ok: it does not end, is longer than a name can be, or points
// elsewhere than to what stands before it and stays as it is.
func (r *plainReply) expand(packet []byte, at int) (name []byte, end int, ok bool) {
	name = r.room[:0]
	before := len(packet)
	for jumps := 0; at >= headerBytes && at < before && jumps < 2*maxChain; {
		n, size := int(packet[at]), 1+int(packet[at])
		if n >= 0xc0 {
			size = 2
		}
		if n > 63 && n < 0xc0 || at+size > before || r.overTTL(at, at+size) {
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
		case len(name)+size >= nameMost:
			return nil, 0, false
		default:
			for _, c := range packet[at : at+size] {
				name = append(name, fold(c)) // the length is below 64, so folding leaves it alone
			}
			at += size
		}
	}
	return nil, 0, false
}

// overTTL tells whether a TTL stands between two places.
func (r *plainReply) overTTL(from, to int) bool {
	return slices.ContainsFunc(r.ttls, func(t recordTTL) bool { return from < int(t.at)+4 && int(t.at) < to })
}

// appendTo appends the reply for a client that asked by q, with its id and
// spelling.
func (r *plainReply) appendTo(out []byte, q *quick) []byte {
	out = append(out, r.wire...)
	out[0], out[1] = q.packet[0], q.packet[1]
	out[2] = out[2]&0x84 | q.packet[2]&0x01 // QR and AA; RD as it was asked
	ad := byte(0)
	if q.flags&(flagAD|flagDO) != 0 {
		ad = 0x20 // RFC 6840 §5.8
	}
	out[3] = out[3]&(0x80|ad) | q.packet[3]&0x10 // RA and AD; CD as it was asked
	copy(out[headerBytes:], q.packet[headerBytes:q.end])
	out[10], out[11] = 0, 0
	if q.edns {
		out[11] = 1
		out = append(out, 0, 0, byte(dns.TypeOPT))
		out = binary.BigEndian.AppendUint16(out, advertised)
		out = append(out, 0, 0, byte(q.flags&flagDO)<<4, 0, 0, 0) // DO is the top bit
	}
	return out
}

// size is how long appendTo's reply is.
func (r *plainReply) size(q *quick) int {
	if q.edns {
		return len(r.wire) + optBytes
	}
	return len(r.wire)
}

// lower lowers what a pod is told of TTLs in a reply that appendTo made: no address
// for longer than the way to it holds, and nothing of the answer for longer than
// longest, in seconds.
func (r *plainReply) lower(out []byte, longest uint32) {
	for _, t := range r.ttls {
		if !t.answer {
			continue
		}
		ttl := min(t.ttl, longest)
		if t.address >= 0 {
			ttl = min(ttl, r.addrs[t.address].TTL)
		}
		binary.BigEndian.PutUint32(out[t.at:], ttl)
	}
}
