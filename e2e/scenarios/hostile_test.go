package scenarios

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/fatal"
	"github.com/namegate/namegate/e2e/lab"
)

// victim is the address that hostile answers want opened; each has its own.
func victim(n int) netip.Addr { return netip.AddrFrom4([4]byte{203, 0, 113, byte(n)}) }

func a(owner string, ttl uint32, addr netip.Addr) dns.RR {
	return &dns.A{Hdr: dns.RR_Header{Name: owner, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: ttl}, A: net.IP(addr.AsSlice())}
}

func cname(owner, target string) dns.RR {
	return &dns.CNAME{Hdr: dns.RR_Header{Name: owner, Rrtype: dns.TypeCNAME, Class: dns.ClassINET, Ttl: 60}, Target: target}
}

// packet renders a reply after a change to it.
func packet(query *dns.Msg, change func(r *dns.Msg)) []byte {
	r := new(dns.Msg).SetReply(query)
	change(r)
	wire, err := r.Pack()
	if err != nil {
		panic(err)
	}
	return wire
}

// bomb is a reply whose answer's owner is a chain of compression pointers, the
// last to itself.
func bomb(query *dns.Msg, addr netip.Addr) []byte {
	wire := packet(query, func(*dns.Msg) {})
	binary.BigEndian.PutUint16(wire[6:], 2)
	for range 2 {
		at := len(wire)
		for i := range 500 {
			wire = binary.BigEndian.AppendUint16(wire, 0xc000|uint16(at+2*(i+1))&0x3fff)
		}
		wire = binary.BigEndian.AppendUint16(wire, 0xc000|uint16(len(wire)))
		wire = append(wire, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4)
		wire = append(wire, addr.AsSlice()...)
	}
	return wire
}

// hostileAnswers are answers that must open nothing.
var hostileAnswers = []struct {
	name string
	raw  func(query *dns.Msg, addr netip.Addr) [][]byte
}{
	{"wrong id", func(q *dns.Msg, v netip.Addr) [][]byte {
		return [][]byte{packet(q, func(r *dns.Msg) { r.Id++; r.Answer = []dns.RR{a(q.Question[0].Name, 60, v)} })}
	}},
	{"wrong question", func(q *dns.Msg, v netip.Addr) [][]byte {
		return [][]byte{packet(q, func(r *dns.Msg) {
			r.Question[0].Name = "www.hostile.test."
			r.Answer = []dns.RR{a("www.hostile.test.", 60, v)}
		})}
	}},
	{"wrong type", func(q *dns.Msg, v netip.Addr) [][]byte {
		return [][]byte{packet(q, func(r *dns.Msg) {
			r.Question[0].Qtype = dns.TypeAAAA
			r.Answer = []dns.RR{a(q.Question[0].Name, 60, v)}
		})}
	}},
	{"no question", func(q *dns.Msg, v netip.Addr) [][]byte {
		return [][]byte{packet(q, func(r *dns.Msg) {
			r.Answer = []dns.RR{a(q.Question[0].Name, 60, v)}
			r.Question = nil
		})}
	}},
	{"a query in reply", func(q *dns.Msg, v netip.Addr) [][]byte {
		return [][]byte{packet(q, func(r *dns.Msg) { r.Response = false; r.Answer = []dns.RR{a(q.Question[0].Name, 60, v)} })}
	}},
	{"owner off the chain", func(q *dns.Msg, v netip.Addr) [][]byte {
		return [][]byte{packet(q, func(r *dns.Msg) {
			r.Answer = []dns.RR{cname(q.Question[0].Name, "c.test."), a("d.test.", 60, v), a("www.hostile.test.", 60, v)}
		})}
	}},
	{"CNAME loop", func(q *dns.Msg, v netip.Addr) [][]byte {
		n := q.Question[0].Name
		return [][]byte{packet(q, func(r *dns.Msg) { r.Answer = []dns.RR{cname(n, "c.test."), cname("c.test.", n), a("d.test.", 60, v)} })}
	}},
	{"additional section", func(q *dns.Msg, v netip.Addr) [][]byte {
		return [][]byte{packet(q, func(r *dns.Msg) {
			r.Extra = []dns.RR{a(q.Question[0].Name, 60, v)}
			r.Ns = []dns.RR{a(q.Question[0].Name, 60, v)}
		})}
	}},
	{"a dot in a label", func(q *dns.Msg, v netip.Addr) [][]byte {
		// The owner reads like the question and is one label less.
		owner := strings.Replace(q.Question[0].Name, ".", `\.`, 1)
		return [][]byte{packet(q, func(r *dns.Msg) { r.Answer = []dns.RR{a(owner, 60, v)} })}
	}},
	{"other class", func(q *dns.Msg, v netip.Addr) [][]byte {
		return [][]byte{packet(q, func(r *dns.Msg) {
			rr := a(q.Question[0].Name, 60, v)
			rr.Header().Class = dns.ClassCHAOS
			r.Answer = []dns.RR{rr}
		})}
	}},
	{"compression bomb", func(q *dns.Msg, v netip.Addr) [][]byte { return [][]byte{bomb(q, v)} }},
	{"cut short", func(q *dns.Msg, v netip.Addr) [][]byte {
		whole := packet(q, func(r *dns.Msg) { r.Answer = []dns.RR{a(q.Question[0].Name, 60, v)} })
		var out [][]byte
		for n := range len(whole) {
			out = append(out, whole[:n])
		}
		return out
	}},
	{"noise", func(q *dns.Msg, v netip.Addr) [][]byte {
		return [][]byte{nil, {0}, bytes.Repeat([]byte{0xff}, 1200), bytes.Repeat([]byte{0xc0}, 4000)}
	}},
}

func hostileStage(t *testing.T) *stage {
	s := newStage(t, lab.Routed)
	s.zone.add(`honest.hostile.test. 60 IN A 198.51.100.1`)
	s.start(map[string]string{
		"a.yaml": s.Pod("a").Manifest("shop", "a", nil),
		"p.yaml": policy("hostile", `
podSelector: {}
egress:
- matches: [{pattern: "*.hostile.test"}]
  ports: [{protocol: TCP, port: 80}]`),
	})
	return s
}

func TestHostileAnswersOpenNothing(t *testing.T) {
	t.Parallel()
	s := hostileStage(t)
	sniffer, err := s.World.Sniff("eth0")
	fatal.If(t, err)
	defer sniffer.Close()
	for i, h := range hostileAnswers {
		name := fmt.Sprintf("h%d.hostile.test", i)
		s.outside.AnswerRaw(name, func(q *dns.Msg) [][]byte { return h.raw(q, victim(i+1)) })
	}
	for i, h := range hostileAnswers {
		t.Run(h.name, func(t *testing.T) {
			for _, network := range []string{"udp", "tcp"} {
				r, err := s.ask("a", network, fmt.Sprintf("h%d.hostile.test", i), dns.TypeA)
				if err == nil && len(addresses(r)) != 0 {
					t.Errorf("over %s the pod was told %v", network, addresses(r))
				}
			}
			if got := s.Pod("a").ProbeFor("tcp", netip.AddrPortFrom(victim(i+1), 80), lab.PatienceFor(lab.Refused)); got != lab.Refused {
				t.Errorf("the address is open: %s", got)
			}
			s.settle(sniffer)
			if n := sniffer.Saw(victim(i + 1)); n != 0 {
				t.Errorf("%d packets reached it", n)
			}
			// The proxy is well, and honest answers still open.
			s.resolve("a", "honest.hostile.test", dns.TypeA)
			if got := s.Pod("a").ProbeFor("tcp", addrPort("198.51.100.1:80"), lab.PatienceFor(lab.Answered)); got != lab.Answered {
				t.Errorf("an honest name afterwards: %s", got)
			}
		})
	}
}

// TestUnusualValidAnswers are unusual, and the addresses in the pod's reply are open.
func TestUnusualValidAnswers(t *testing.T) {
	t.Parallel()
	s := hostileStage(t)
	tests := []struct {
		name   string
		answer func(q *dns.Msg, r *dns.Msg)
		most   int
	}{
		{"mixed case", func(q, r *dns.Msg) { r.Answer = []dns.RR{a(strings.ToUpper(q.Question[0].Name), 60, victim(101))} }, 1},
		{"TTL 0", func(q, r *dns.Msg) { r.Answer = []dns.RR{a(q.Question[0].Name, 0, victim(102))} }, 1},
		{"TTL of 2^31", func(q, r *dns.Msg) { r.Answer = []dns.RR{a(q.Question[0].Name, 1<<31, victim(103))} }, 1},
		{"TTL of 2^32-1", func(q, r *dns.Msg) { r.Answer = []dns.RR{a(q.Question[0].Name, 1<<32-1, victim(104))} }, 1},
		{"4,000 records", func(q, r *dns.Msg) {
			for i := range 4000 {
				r.Answer = append(r.Answer, a(q.Question[0].Name, 60, netip.AddrFrom4([4]byte{198, 18, byte(100 + i>>8), byte(i)})))
			}
			r.Compress = true
		}, 128},
	}
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			name := fmt.Sprintf("s%d.hostile.test", i)
			s.zone.say(name, func(q *dns.Msg) *dns.Msg {
				r := new(dns.Msg).SetReply(q)
				test.answer(q, r)
				return r
			})
			r, err := s.ask("a", "tcp", strings.ToUpper(name[:4])+name[4:], dns.TypeA)
			fatal.If(t, err)
			told := addresses(r)
			if len(told) == 0 || len(told) > test.most {
				t.Fatalf("the pod was told %d addresses, at most %d were to be", len(told), test.most)
			}
			for _, addr := range told {
				if got := s.Pod("a").ProbeFor("tcp", netip.AddrPortFrom(addr, 80), lab.PatienceFor(lab.Answered)); got != lab.Answered {
					t.Errorf("%s, which the pod was told: %s", addr, got)
				}
			}
		})
	}
	s.expect("a", "tcp", "198.18.115.159:80", lab.Refused) // the last of the 4,000
}
