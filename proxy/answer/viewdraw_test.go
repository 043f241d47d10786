package answer

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/wire"
)

// replyDraw draws replies as an upstream may send them: most nearly right, some
// broken.
type replyDraw struct {
	rng    *rand.Rand
	packet []byte
	names  []int // where names begin
	at     int   // the offset of the name at the end of the CNAMEs
	qtype  uint16
}

func (d *replyDraw) one(in int) bool { return d.rng.IntN(in) == 0 }

// ttl draws the TTL of a record.
func (d *replyDraw) ttl() uint32 {
	return []uint32{60, 60, 60, 60, 60, 60, 300, 5, 0, 1, 86400, 1 << 31, 1<<31 - 1, 1<<32 - 1, 0x01610000}[d.rng.IntN(15)]
}

func pointerTo(at int) []byte { return []byte{0xc0 | byte(at>>8), byte(at)} }

// owner draws the owner of the next record, nearly always the name that the
// question has led to.
func (d *replyDraw) owner() []byte {
	switch d.rng.IntN(60) {
	case 0:
		return append([]byte{3, d.packet[wire.HeaderBytes+1] &^ 0x20}, d.packet[wire.HeaderBytes+2:wire.QuestionEnd(d.packet)-4]...)
	case 1:
		return pointerTo(d.names[d.rng.IntN(len(d.names))])
	case 2:
		return append(bytes.Clone(d.packet[wire.HeaderBytes:wire.HeaderBytes+4]), 0xc0, wire.HeaderBytes+4)
	case 3:
		return append([]byte("\x03ads"), pointerTo(d.names[d.rng.IntN(len(d.names))])...)
	case 4:
		if d.one(4) {
			return pointerTo(d.rng.IntN(len(d.packet) + 40))
		}
	}
	return pointerTo(d.at)
}

// name draws the target of a CNAME, or of an NS record.
func (d *replyDraw) name() []byte {
	switch d.rng.IntN(12) {
	case 0:
		return []byte("\x03CDN\x04tESt\x00")
	case 1:
		return pointerTo(d.names[d.rng.IntN(len(d.names))])
	case 2:
		return []byte{0}
	case 3:
		return append([]byte("\x01.\x01\\\x01\x00"), pointerTo(d.names[d.rng.IntN(len(d.names))])...)
	case 4:
		if d.one(3) {
			return append([]byte("\x01x"), pointerTo(d.rng.IntN(len(d.packet)+40))...)
		}
	case 5:
		if d.one(3) {
			return bytes.Repeat([]byte("\x3f"+string(bytes.Repeat([]byte("x"), 63))), 4)
		}
	}
	return append([]byte{2, 'c', 'a' + byte(d.rng.IntN(26))}, pointerTo(d.names[d.rng.IntN(len(d.names))])...)
}

// add appends a record.
func (d *replyDraw) add(owner []byte, kind uint16, data []byte) {
	class := uint16(dns.ClassINET)
	if d.one(300) {
		class = dns.ClassCHAOS
	}
	d.packet = append(d.packet, wireRecord(owner, kind, class, d.ttl(), data)...)
	if d.one(400) {
		binary.BigEndian.PutUint16(d.packet[len(d.packet)-len(data)-2:], uint16(d.rng.IntN(40)))
	}
}

// address draws the data of an address record.
func (d *replyDraw) address() []byte {
	v4 := []byte{192, 0, 2, byte(d.rng.IntN(4))}
	if d.one(60) {
		v4[3] = 99 // a Service's, see expressCluster
	}
	if d.one(200) {
		v4 = v4[:3]
	}
	if d.qtype == dns.TypeA != d.one(200) {
		return v4
	}
	if d.one(8) {
		return append(append(make([]byte, 10), 0xff, 0xff), v4...) // mapped
	}
	return append([]byte{0x20, 1, 0x0d, 0xb8, 11: 0}, v4...)
}

func (d *replyDraw) answers() (count int) {
	chain := 0
	if d.one(2) {
		chain = []int{1, 1, 1, 2, 2, 3, 15, 16, 17}[d.rng.IntN(9)]
	}
	for range chain {
		owner := d.owner()
		at := len(d.packet) + len(owner) + 10
		d.add(owner, dns.TypeCNAME, d.name())
		d.names, d.at = append(d.names, at), at
		count++
	}
	for range []int{0, 1, 1, 1, 1, 1, 2, 3, 9, 64, 65}[d.rng.IntN(11)] {
		kind := d.qtype
		if d.one(80) {
			kind = []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeRRSIG, dns.TypeTXT, dns.TypeHTTPS, dns.TypeCNAME}[d.rng.IntN(6)]
		}
		d.add(d.owner(), kind, d.address())
		count++
	}
	return count
}

func (d *replyDraw) authority() (count int) {
	for range []int{0, 0, 0, 1, 2}[d.rng.IntN(5)] {
		owner := d.owner()
		d.names = append(d.names, len(d.packet)+len(owner)+10)
		switch d.rng.IntN(8) {
		case 0:
			d.add(owner, dns.TypeSOA, append(append(d.name(), d.name()...), make([]byte, 20)...))
		case 1:
			d.add(owner, []uint16{dns.TypeA, dns.TypeNSEC, dns.TypeDS}[d.rng.IntN(3)], d.address())
		default:
			d.add(owner, dns.TypeNS, d.name())
		}
		count++
	}
	return count
}

func (d *replyDraw) additional() (count int) {
	if d.one(20) {
		d.add(d.owner(), d.qtype, d.address())
		count++
	}
	if !d.one(3) {
		opt := optRecord(nil)
		switch d.rng.IntN(16) {
		case 0:
			opt = optRecord([]byte{0, 15, 0, 2, 0, 3}) // an extended error
		case 1:
			opt = optRecord([]byte{0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8}) // a cookie
		case 2:
			opt[5+d.rng.IntN(4)] = byte(d.rng.IntN(256))
		}
		d.packet = append(d.packet, opt...)
		count++
	}
	return count
}

// reply draws the reply to a query.
func (d *replyDraw) reply(q *dns.Msg) []byte {
	flags := uint16(noerror)
	if d.one(8) {
		flags ^= 1 << d.rng.IntN(15) // not QR
	}
	d.packet, d.at, d.qtype = wireReply(q, flags), wire.HeaderBytes, q.Question[0].Qtype
	d.names = []int{wire.HeaderBytes, wire.HeaderBytes + 4, wire.HeaderBytes + 12}
	for i, section := range []func() int{d.answers, d.authority, d.additional} {
		n := section()
		binary.BigEndian.PutUint16(d.packet[6+2*i:], uint16(n))
	}
	switch d.rng.IntN(20) {
	case 0:
		d.packet = d.packet[:wire.QuestionEnd(d.packet)+d.rng.IntN(len(d.packet)-wire.QuestionEnd(d.packet)+1)]
	case 1:
		d.packet = append(d.packet, 0)
	case 2:
		end := wire.QuestionEnd(d.packet)
		if len(d.packet) > end {
			d.packet[end+d.rng.IntN(len(d.packet)-end)] = byte(d.rng.IntN(256))
		}
	case 3:
		d.packet[5+2*d.rng.IntN(4)]++
		d.packet[5] = 1
	}
	return d.packet
}

// drawQuery draws a query for the name that wire.ParseQuery reads.
func drawQuery(rng *rand.Rand, qname string) *dns.Msg {
	m := newQuery(qname, []uint16{dns.TypeA, dns.TypeA, dns.TypeA, dns.TypeAAAA}[rng.IntN(4)])
	m.RecursionDesired, m.AuthenticatedData, m.CheckingDisabled = rng.IntN(8) > 0, rng.IntN(6) == 0, rng.IntN(6) == 0
	if rng.IntN(3) == 0 {
		spelt := []byte(m.Question[0].Name)
		for i, c := range spelt {
			if 'a' <= c && c <= 'z' && rng.IntN(2) == 0 {
				spelt[i] = c - 'a' + 'A'
			}
		}
		m.Question[0].Name = string(spelt)
	}
	if rng.IntN(2) == 0 {
		m.SetEdns0([]uint16{0, 512, 600, 1232, 4096}[rng.IntN(5)], rng.IntN(4) == 0)
		if rng.IntN(4) == 0 {
			m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0123456789abcdef"}}
		}
	}
	return m
}

func drawPlainCase(rng *rand.Rand) plainCase {
	q := drawQuery(rng, plainName)
	c := newPlainCase(q, (&replyDraw{rng: rng}).reply(q))
	c.bounds = drawBounds(rng.Uint32())
	if rng.IntN(4) == 0 {
		c.most = 1 + rng.IntN(8)
	}
	return c
}

func drawBounds(n uint32) []wire.TTLBounds {
	least, greatest := []uint32{0, 0, 5, 30}, []uint32{wire.MaxTTL, wire.MaxTTL, 3600, 40}
	return []wire.TTLBounds{{Min: least[n&3], Max: greatest[n>>2&3]}, {Min: least[n>>4&3], Max: greatest[n>>6&3]}}
}

// FuzzAnswerView: reading in place equals the parser, Check and trim. The input is the
// reply behind its id and question: second and third byte, counts, records.
func FuzzAnswerView(f *testing.F) {
	rng := rand.New(rand.NewPCG(6, 13))
	for range 200 {
		q := newQuery(plainName, dns.TypeA+uint16(rng.IntN(2))*(dns.TypeAAAA-dns.TypeA))
		p := (&replyDraw{rng: rng}).reply(q)
		f.Add(append(append(bytes.Clone(p[2:4]), p[6:wire.HeaderBytes]...), p[wire.QuestionEnd(p):]...), rng.Uint32())
	}
	f.Fuzz(func(t *testing.T, tail []byte, how uint32) {
		if len(tail) < 8 {
			return
		}
		q := newQuery(plainName, dns.TypeA)
		if how&(1<<8) != 0 {
			q.Question[0].Qtype = dns.TypeAAAA
		}
		if how&(1<<9) != 0 {
			q.SetEdns0(1232, how&(1<<10) != 0)
		}
		p := wireReply(q, binary.BigEndian.Uint16(tail))
		copy(p[6:wire.HeaderBytes], tail[2:8])
		c := newPlainCase(q, append(p, tail[8:]...))
		c.bounds, c.most = drawBounds(how), 1+int(how>>11&63)
		c.wantTwin(t)
	})
}
