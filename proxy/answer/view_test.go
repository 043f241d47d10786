package answer

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// plainCase is a reply, the query that it answers and the settings by which it is
// read.
type plainCase struct {
	packet []byte
	query  *dns.Msg
	most   int
	bounds []wire.TTLBounds
}

var anyTTL = []wire.TTLBounds{{Max: wire.MaxTTL}, {Max: wire.MaxTTL}}

func newPlainCase(q *dns.Msg, packet []byte) plainCase {
	return plainCase{packet, q, 64, anyTTL}
}

// wantTwin compares the reply read in place with the results of the parser, Check and
// trim, and returns whether it could be read in place.
func (c plainCase) wantTwin(t testing.TB) bool {
	t.Helper()
	q, ok := wire.ParseQuery(packed(t, c.query))
	if !ok {
		t.Fatalf("the query is not plain: %v", c.query)
	}
	asked, _ := ReadQuestion(c.query)
	var r wire.AnswerView
	read := bytes.Clone(c.packet)
	if !r.Parse(read, asked, c.most, c.bounds) {
		if !bytes.Equal(read, c.packet) {
			t.Fatalf("what is not plain was changed\n%x\n%x", c.packet, read)
		}
		return false
	}
	m := new(dns.Msg)
	fatal.If(t, m.Unpack(c.packet), "the parser does not read it", c.packet)
	for _, b := range c.bounds {
		BoundTTLs(m, b.Min, b.Max)
	}
	checked := Check(asked, m, c.most)
	if checked.Reason != "" || checked.Over != 0 || len(checked.Addrs) != len(r.Addrs) || !slices.Equal(checked.Chain, r.Chain) {
		t.Fatalf("read %v by %v, checked %+v\n%x", r.Addrs, r.Chain, checked, c.packet)
	}
	for i, a := range checked.Addrs {
		diff.MustEqual(t, a, r.Addrs[i], "address", i, c.packet)
	}
	diff.MustEqual(t, MinTTL(m), r.MinTTL(), "the least TTL")
	r.Own()
	stored := bytes.Clone(r.Message)
	kept := *m
	kept.Extra = nil
	wantMessage(t, "what is kept", parsed(t, stored), &kept)

	said := r.AppendReply(nil, &q)
	wantMessage(t, "what is told to somebody unselected", parsed(t, said), Relay(c.query, m))
	for _, longest := range []uint32{wire.MaxTTL, 7} {
		r.LowerTTLs(said, longest)
		want := Relay(c.query, m)
		Restrict(want, checked.Addrs, longest)
		wantMessage(t, "what is told to a pod", parsed(t, said), want)
	}
	if !bytes.Equal(r.Message, stored) {
		t.Fatal("telling it has changed what is kept")
	}
	return true
}

// wantMessage compares two messages but for the spelling of their names.
func wantMessage(t testing.TB, what string, got, want *dns.Msg) {
	t.Helper()
	diff.MustEqual(t, strings.ToLower(want.String()), strings.ToLower(got.String()), what)
}

const plainName = "www.example.org."

// Owners of the records in these tests, on the wire.
var (
	ofQuestion = []byte{0xc0, wire.HeaderBytes}
	wwwSpelt   = []byte("\x03wWw\x07example\x03org\x00")
)

// wireRecord is a valid or invalid record on the wire.
func wireRecord(owner []byte, kind, class uint16, ttl uint32, data []byte) []byte {
	b := binary.BigEndian.AppendUint16(bytes.Clone(owner), kind)
	b = binary.BigEndian.AppendUint16(b, class)
	b = binary.BigEndian.AppendUint32(b, ttl)
	b = binary.BigEndian.AppendUint16(b, uint16(len(data)))
	return append(b, data...)
}

// wireReply is a reply to the query of these sections; flags are its second and
// third byte.
func wireReply(q *dns.Msg, flags uint16, sections ...[][]byte) []byte {
	b, _ := (&dns.Msg{MsgHdr: dns.MsgHdr{Id: q.Id}, Question: q.Question}).Pack()
	binary.BigEndian.PutUint16(b[2:], flags)
	for i, s := range sections {
		binary.BigEndian.PutUint16(b[6+2*i:], uint16(len(s)))
		for _, rr := range s {
			b = append(b, rr...)
		}
	}
	return b
}

const noerror = 0x8180 // QR, RD, RA

func optRecord(options []byte) []byte {
	return wireRecord([]byte{0}, dns.TypeOPT, 1232, 0, options)
}

func TestPlainReplies(t *testing.T) {
	a := func(owner []byte) []byte {
		return wireRecord(owner, dns.TypeA, dns.ClassINET, 60, []byte{192, 0, 2, 1})
	}
	cname := func(owner []byte, to string) []byte {
		return wireRecord(owner, dns.TypeCNAME, dns.ClassINET, 30, []byte(to))
	}
	answers := func(rrs ...[]byte) [][]byte { return rrs }
	const (
		end    = wire.HeaderBytes + len(plainName) + 1 + 4
		target = end + 12 // of a CNAME record that is the first and owned by a pointer
	)
	at := func(i int) []byte { return []byte{0xc0 | byte(i>>8), byte(i)} }
	toA := cname(ofQuestion, "\x01a\xc0\x10") // a.example.org
	soa := append([]byte("\x02ns\xc0\x10\x00"), make([]byte, 20)...)
	var sections = func(s ...[][]byte) [][][]byte { return s }
	for _, tt := range []struct {
		name     string
		flags    uint16
		sections [][][]byte
		tail     string
		plain    bool
	}{
		{"one address", noerror, sections(answers(a(ofQuestion))), "", true},
		{"spelled out", noerror, sections(answers(a(wwwSpelt))), "", true},
		{"AA, AD and Z", 0x8580 | 0x60, sections(answers(a(ofQuestion))), "", true},
		{"a chain", noerror, sections(answers(toA, a(at(target)))), "", true},
		{"a chain of two", noerror, sections(answers(toA, cname(at(target), "\x01b"+string(at(target+2))), a(at(target+16)))), "", true},
		{"an OPT record", noerror, sections(answers(a(ofQuestion)), nil, answers(optRecord(nil))), "", true},
		{"name servers", noerror, sections(answers(a(ofQuestion)), answers(wireRecord(at(0x10), dns.TypeNS, 1, 9, []byte("\x02ns\xc0\x10")))), "", true},
		{"a start of authority", noerror, sections(answers(a(ofQuestion)), answers(wireRecord(at(0x10), dns.TypeSOA, 1, 9, soa))), "", true},

		{"no address", noerror, sections(nil), "", false},
		{"cut off", noerror | 0x200, sections(answers(a(ofQuestion))), "", false},
		{"a query", 0x0180, sections(answers(a(ofQuestion))), "", false},
		{"a notification", noerror | 0x2000, sections(answers(a(ofQuestion))), "", false},
		{"NXDOMAIN", noerror | 3, sections(answers(a(ofQuestion))), "", false},
		{"bytes behind it", noerror, sections(answers(a(ofQuestion))), "\x00", false},
		{"a circle", noerror, sections(answers(toA, cname(at(target), "\xc0\x0c"), a(ofQuestion))), "", false},
		{"a CNAME to itself", noerror, sections(answers(cname(ofQuestion, "\xc0\x0c"), a(ofQuestion))), "", false},
		{"a circle further on", noerror, sections(answers(toA, cname(at(target), "\x01b\xc0\x10"), cname(at(target+16), string(at(target))), a(at(target)))), "", false},
		{"out of order", noerror, sections(answers(a(at(end+12+4+2)), toA)), "", false},
		{"a foreign owner", noerror, sections(answers(a(at(0x10)))), "", false},
		{"another class", noerror, sections(answers(wireRecord(ofQuestion, dns.TypeA, dns.ClassCHAOS, 60, []byte{192, 0, 2, 1}))), "", false},
		{"another type", noerror, sections(answers(wireRecord(ofQuestion, dns.TypeAAAA, 1, 60, make([]byte, 16)))), "", false},
		{"an address of three bytes", noerror, sections(answers(wireRecord(ofQuestion, dns.TypeA, 1, 60, make([]byte, 3)))), "", false},
		{"a signature", noerror, sections(answers(a(ofQuestion), wireRecord(ofQuestion, dns.TypeRRSIG, 1, 60, make([]byte, 24)))), "", false},
		{"an address beside it", noerror, sections(answers(a(ofQuestion)), nil, answers(a(at(0x10)))), "", false},
		{"an address as authority", noerror, sections(answers(a(ofQuestion)), answers(a(at(0x10)))), "", false},
		{"an OPT record with options", noerror, sections(answers(a(ofQuestion)), nil, answers(optRecord([]byte{0, 15, 0, 2, 0, 3}))), "", false},
		{"an extended response code", noerror, sections(answers(a(ofQuestion)), nil, answers(wireRecord([]byte{0}, dns.TypeOPT, 1232, 1<<24, nil))), "", false},
		{"name servers that cannot be read", noerror, sections(answers(a(ofQuestion)), answers(wireRecord(at(0x10), dns.TypeNS, 1, 9, []byte("\x3fns")))), "", false},
		{"an owner that cannot be read", noerror, sections(answers(a(ofQuestion)), answers(wireRecord([]byte("\x41ns\x00"), dns.TypeNS, 1, 9, []byte("\x00")))), "", false},
		{"a start of authority cut short", noerror, sections(answers(a(ofQuestion)), answers(wireRecord(at(0x10), dns.TypeSOA, 1, 9, soa[:20]))), "", false},
		{"a pointer into what is taken out", noerror, sections(answers(a(ofQuestion)), answers(wireRecord(at(end+16+12+1), dns.TypeNS, 1, 9, []byte{0})), answers(optRecord(nil))), "", false},
		{"a target that points to itself", noerror, sections(answers(cname(ofQuestion, string(at(target))), a(at(target)))), "", false},
		{"a target that points forward", noerror, sections(answers(cname(ofQuestion, string(at(target+2+2+10))), a(at(target)))), "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q := newQuery(plainName, dns.TypeA)
			packet := append(wireReply(q, tt.flags, tt.sections...), tt.tail...)
			diff.Equal(t, tt.plain, newPlainCase(q, packet).wantTwin(t), "plain", packet)
		})
	}
}

// TestNamesInTTLs: if a compressed name points into a TTL, bounding the TTL would change
// the name.
func TestNamesInTTLs(t *testing.T) {
	q := newQuery(plainName, dns.TypeA)
	const end = wire.HeaderBytes + len(plainName) + 1 + 4
	const ttlAt = end + 6
	first := wireRecord(ofQuestion, dns.TypeCNAME, dns.ClassINET, 0x01610000, []byte{0xc0, byte(ttlAt)})
	second := wireRecord([]byte{0xc0, byte(ttlAt)}, dns.TypeA, dns.ClassINET, 60, []byte{192, 0, 2, 1})
	c := newPlainCase(q, wireReply(q, noerror, [][]byte{first, second}))
	c.bounds = []wire.TTLBounds{{Max: 3600}, {Max: wire.MaxTTL}}
	if c.wantTwin(t) {
		t.Error("it was read as plain")
	}
}

func TestLongestPlainChain(t *testing.T) {
	for chain, want := range map[int]bool{0: true, 1: true, wire.MaxChain: true, wire.MaxChain + 1: false} {
		q := newQuery(plainName, dns.TypeAAAA)
		owner, at := ofQuestion, wire.HeaderBytes+len(plainName)+1+4
		var rrs [][]byte
		for i := range chain {
			rrs = append(rrs, wireRecord(owner, dns.TypeCNAME, dns.ClassINET, uint32(100-i), []byte{2, 'c', 'a' + byte(i), 0xc0, 0x10}))
			owner = []byte{0xc0 | byte((at+12)>>8), byte(at + 12)}
			at += len(rrs[i])
		}
		rrs = append(rrs, wireRecord(owner, dns.TypeAAAA, dns.ClassINET, 90, policyAddr))
		diff.Equal(t, want, newPlainCase(q, wireReply(q, noerror, rrs)).wantTwin(t), "plain with", chain, "CNAMEs")
	}
}

// policyAddr is 2001:db8::7.
var policyAddr = mustAddr("2001:db8::7").AsSlice()

func TestAnswerViewTwins(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 11))
	plain, all := 0, 20_000
	for range all {
		c := drawPlainCase(rng)
		if c.wantTwin(t) {
			plain++
		}
	}
	if plain < all/5 || plain > all*9/10 {
		t.Errorf("%d of %d were plain: the draw is lopsided", plain, all)
	}
}

func TestReuseOfAnAnswerView(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 12))
	var used wire.AnswerView
	for range 2000 {
		c := drawPlainCase(rng)
		q, _ := ReadQuestion(c.query)
		view, _ := wire.ParseQuery(packed(t, c.query))
		var fresh wire.AnswerView
		one, other := bytes.Clone(c.packet), bytes.Clone(c.packet)
		diff.MustEqual(t, fresh.Parse(other, q, c.most, c.bounds), used.Parse(one, q, c.most, c.bounds), "by a reader that was used", c.packet)
		var copied wire.AnswerView
		copied.CopyFrom(&used)
		if !slices.Equal(used.Addrs, fresh.Addrs) || !slices.Equal(copied.Addrs, fresh.Addrs) || !slices.EqualFunc(copied.Chain, fresh.Chain, func(a, b fqdn.Name) bool { return a == b }) || used.Fits(&view) != fresh.Fits(&view) {
			t.Fatalf("used %+v, fresh %+v", used, fresh)
		}
	}
}
