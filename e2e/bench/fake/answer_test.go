package fake

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/testkit/fatal"
)

func query(t testing.TB, name string, qtype uint16, edns bool) []byte {
	t.Helper()
	m := new(dns.Msg).SetQuestion(name, qtype)
	if edns {
		m.SetEdns0(1232, false)
	}
	wire, err := m.Pack()
	fatal.If(t, err)
	return wire
}

func TestAnswer(t *testing.T) {
	for _, c := range []struct {
		name  string
		qtype uint16
		want  string // the address, empty for none
		ttl   uint32
	}{
		{"n17.w1.new.bench.test.", dns.TypeA, "198.19.0.17", 1},
		{"n258.w2.new.bench.test.", dns.TypeA, "198.19.1.2", 1},
		{"n65537.w2.new.bench.test.", dns.TypeA, "198.19.0.1", 1},
		{"c999.kept.bench.test.", dns.TypeA, "198.18.3.231", 3000},
		{"C999.KePt.Bench.TEST.", dns.TypeA, "198.18.3.231", 3000},
		{"www.example.org.", dns.TypeA, "198.19.0.0", 1},
		{".", dns.TypeA, "198.19.0.0", 1},
		{"n17.w1.new.bench.test.", dns.TypeAAAA, "", 0},
		{"n17.w1.new.bench.test.", dns.TypeHTTPS, "", 0},
	} {
		for _, edns := range []bool{false, true} {
			q := query(t, c.name, c.qtype, edns)
			var r dns.Msg
			if err := r.Unpack(Answer(nil, q)); err != nil {
				t.Errorf("%s: %v", c.name, err)
				continue
			}
			check(t, &r, q, c.name, c.want, c.ttl)
			if got := r.IsEdns0() != nil; got != edns {
				t.Errorf("%s: EDNS is %t in the answer and %t in the query", c.name, got, edns)
			}
		}
	}
}

func check(t *testing.T, r *dns.Msg, q []byte, name, want string, ttl uint32) {
	t.Helper()
	var asked dns.Msg
	fatal.If(t, asked.Unpack(q))
	if r.Id != asked.Id || !r.Response || r.Rcode != dns.RcodeSuccess || r.Truncated || !r.RecursionAvailable || r.RecursionDesired != asked.RecursionDesired {
		t.Errorf("%s: %v", name, r.MsgHdr)
	}
	if len(r.Question) != 1 || r.Question[0] != asked.Question[0] {
		t.Errorf("%s: the question is %v", name, r.Question)
	}
	if want == "" {
		if len(r.Answer) > 0 {
			t.Errorf("%s: answered %v, want none", name, r.Answer)
		}
		return
	}
	if len(r.Answer) != 1 {
		t.Errorf("%s: %d answers", name, len(r.Answer))
		return
	}
	a, ok := r.Answer[0].(*dns.A)
	if !ok || a.A.String() != want || a.Hdr.Ttl != ttl || a.Hdr.Name != name {
		t.Errorf("%s: %v, want %s for %d s", name, r.Answer[0], want, ttl)
	}
}

// Names one after the other have addresses of their own: each is a grant.
func TestAddressesDiffer(t *testing.T) {
	seen := map[netip.Addr]int{}
	for n := range 1 << 16 {
		var r dns.Msg
		fatal.If(t, r.Unpack(Answer(nil, query(t, fmt.Sprintf("n%d.w%d.%s.", n, n%4, NewZone), dns.TypeA, false))))
		addr, _ := netip.AddrFromSlice(r.Answer[0].(*dns.A).A.To4())
		if other, taken := seen[addr]; taken {
			t.Fatalf("names %d and %d have the address %s", other, n, addr)
		}
		seen[addr] = n
	}
}

func TestSilence(t *testing.T) {
	good := query(t, "www.example.org.", dns.TypeA, false)
	reply := bytes.Clone(good)
	reply[2] |= 0x80
	two := bytes.Clone(good)
	two[5] = 2
	none := bytes.Clone(good[:headerSize])
	none[5] = 0
	pointer := append(bytes.Clone(good[:headerSize]), 0xc0, 0x0c, 0, 1, 0, 1)
	for name, packet := range map[string][]byte{
		"nothing": nil, "a header cut off": good[:11], "a header alone": good[:headerSize], "cut off": good[:len(good)-1],
		"a reply": reply, "two questions": two, "no question": none, "a pointer": pointer,
	} {
		if got := Answer(nil, packet); got != nil {
			t.Errorf("%s was answered with %x", name, got)
		}
	}
}

// What is already in the buffer stays, and the query is not changed.
func TestAnswerAppends(t *testing.T) {
	q := query(t, "n5.w1.new.bench.test.", dns.TypeA, true)
	before := bytes.Clone(q)
	alone := Answer(nil, q)
	got := Answer([]byte("before"), q)
	if !bytes.Equal(got, append([]byte("before"), alone...)) {
		t.Errorf("%x, want before and %x", got, alone)
	}
	if !bytes.Equal(q, before) {
		t.Error("the query was changed")
	}
}

func TestAnswerAllocatesNothing(t *testing.T) {
	q, buf := query(t, "n5.w1.new.bench.test.", dns.TypeA, true), make([]byte, 0, 512)
	if n := testing.AllocsPerRun(1000, func() { Answer(buf, q) }); n > 0 {
		t.Errorf("%v allocations an answer", n)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(query(f, "n17.w1.new.bench.test.", dns.TypeA, true))
	f.Add([]byte{})
	for range 4 {
		junk := make([]byte, 40)
		for i := range junk {
			junk[i] = byte(rand.Uint32())
		}
		f.Add(junk)
	}
	f.Fuzz(func(t *testing.T, packet []byte) {
		reply := Answer(nil, packet)
		if reply == nil {
			return
		}
		if !bytes.Equal(reply[:2], packet[:2]) || reply[2]&0x80 == 0 {
			t.Errorf("%x was answered with %x", packet, reply)
		}
		var r dns.Msg
		if err := r.Unpack(reply); err != nil {
			var q dns.Msg
			if q.Unpack(packet) == nil {
				t.Errorf("a good query %x was answered with %x: %v", packet, reply, err)
			}
		}
	})
}
