package proxy

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/diff"
)

const forged = "203.0.113.66"

// TestHostileUpstream: whatever an upstream or a forger sends, the pod is granted
// the honest address at most.
func TestHostileUpstream(t *testing.T) {
	const q = "www.example.org."
	honestly := func(m *dns.Msg) []byte { return says(m, nil, q+" 60 IN A 192.0.2.1") }
	only := func(edit func(*dns.Msg), rrs ...string) func(*dns.Msg) [][]byte {
		return func(m *dns.Msg) [][]byte { return [][]byte{says(m, edit, rrs...)} }
	}
	then := func(edit func(*dns.Msg), rrs ...string) func(*dns.Msg) [][]byte { // and an honest reply
		return func(m *dns.Msg) [][]byte { return [][]byte{says(m, edit, rrs...), honestly(m)} }
	}
	for _, tt := range []struct {
		name    string
		packets func(m *dns.Msg) [][]byte
		grants  []string
		rcode   int
		wrong   uint64 // replies that are to be ignored
	}{
		{name: "wrong id, then honest", wrong: 1, grants: []string{"192.0.2.1"}, packets: then(func(r *dns.Msg) { r.Id++ }, q+" 60 IN A "+forged)},
		{name: "another question, then honest", wrong: 1, grants: []string{"192.0.2.1"}, packets: then(func(r *dns.Msg) { r.Question[0].Name = "www.example.net." }, q+" 60 IN A "+forged)},
		{name: "another type, then honest", wrong: 1, grants: []string{"192.0.2.1"}, packets: then(func(r *dns.Msg) { r.Question[0].Qtype = dns.TypeTXT }, q+" 60 IN A "+forged)},
		{name: "another class, then honest", wrong: 1, grants: []string{"192.0.2.1"}, packets: then(func(r *dns.Msg) { r.Question[0].Qclass = dns.ClassCHAOS }, q+" 60 IN A "+forged)},
		{name: "two questions, then honest", wrong: 1, grants: []string{"192.0.2.1"}, packets: then(func(r *dns.Msg) { r.Question = append(r.Question, r.Question[0]) }, q+" 60 IN A "+forged)},
		{name: "a query instead of a response, then honest", wrong: 1, grants: []string{"192.0.2.1"}, packets: then(func(r *dns.Msg) { r.Response = false }, q+" 60 IN A "+forged)},
		{name: "a packet cut short, then honest", wrong: 1, grants: []string{"192.0.2.1"}, packets: func(m *dns.Msg) [][]byte {
			whole := says(m, nil, q+" 60 IN A "+forged)
			return [][]byte{whole[:len(whole)-3], honestly(m)}
		}},
		{name: "a header, an empty packet, then honest", wrong: 2, grants: []string{"192.0.2.1"}, packets: func(m *dns.Msg) [][]byte {
			return [][]byte{honestly(m)[:wire.HeaderBytes], {}, honestly(m)}
		}},
		{name: "pointers in a circle, then honest", wrong: 1, grants: []string{"192.0.2.1"}, packets: func(m *dns.Msg) [][]byte {
			p := says(m, nil)
			p[7] = 1 // one answer, whose name points at itself
			p = append(p, 0xc0, byte(len(p)), 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 203, 0, 113, 66)
			return [][]byte{p, honestly(m)}
		}},
		{name: "an owner off the chain", packets: only(nil, "www.example.net. 60 IN A "+forged)},
		{name: "an owner off the chain beside an honest one", grants: []string{"192.0.2.1"}, packets: only(nil, "example.org. 60 IN A "+forged, q+" 60 IN A 192.0.2.1")},
		{name: "the chain leads past the address", packets: only(nil, q+" 60 IN CNAME a.test.", "b.test. 60 IN A "+forged)},
		{name: "CNAMEs in a circle", rcode: dns.RcodeServerFailure, packets: only(nil, q+" 60 IN CNAME a.test.", "a.test. 60 IN CNAME "+q, "a.test. 60 IN A "+forged)},
		{name: "a CNAME to itself", rcode: dns.RcodeServerFailure, packets: only(nil, q+" 60 IN CNAME "+q, q+" 60 IN A "+forged)},
		{name: "an endless chain", rcode: dns.RcodeServerFailure, packets: func(m *dns.Msg) [][]byte {
			rrs := []string{q + " 60 IN CNAME c0.test."}
			for i := range 20 {
				rrs = append(rrs, fmt.Sprintf("c%d.test. 60 IN CNAME c%d.test.", i, i+1))
			}
			return [][]byte{says(m, nil, append(rrs, "c20.test. 60 IN A "+forged)...)}
		}},
		{name: "a label with a dot in it", packets: only(nil, `www\.example.org. 60 IN A `+forged)},
		{name: "a CNAME whose owner has a dot in a label", packets: only(nil, `www\.example.org. 60 IN CNAME a.test.`, "a.test. 60 IN A "+forged)},
		{name: "mixed case", grants: []string{"192.0.2.1"}, packets: only(func(r *dns.Msg) { r.Question[0].Name = "wWw.eXample.ORG." }, "WWW.Example.org. 60 IN CNAME A.Test.", "a.tEST. 60 IN A 192.0.2.1")},
		{name: "AAAA in an answer for A", packets: only(nil, q+" 60 IN AAAA 2001:db8::66")},
		{name: "another class in the answer", packets: only(nil, q+" 60 CH A "+forged)},
		{name: "address in the additional section", packets: only(func(r *dns.Msg) { r.Extra, r.Answer = r.Answer, nil }, q+" 60 IN A "+forged)},
		{name: "address in the authority section", packets: only(func(r *dns.Msg) { r.Ns, r.Answer = r.Answer, nil }, q+" 60 IN A "+forged)},
		{name: "address with NXDOMAIN", rcode: dns.RcodeNameError, packets: only(func(r *dns.Msg) { r.Rcode = dns.RcodeNameError }, q+" 60 IN A "+forged)},
		{name: "DNAME with its CNAME", grants: []string{"192.0.2.1"}, packets: only(nil, "example.org. 60 IN DNAME moved.test.", q+" 60 IN CNAME www.moved.test.", "www.moved.test. 60 IN A 192.0.2.1")},
		{name: "DNAME alone", packets: only(nil, "example.org. 60 IN DNAME moved.test.", "www.moved.test. 60 IN A "+forged)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLab(t, nil)
			l.live(zoneOf(startScript(t, func(m *dns.Msg, _ bool) [][]byte { return tt.packets(m) })))
			r := l.ask("10.1.0.2", "www.example.org", dns.TypeA)
			if r.Rcode != tt.rcode {
				t.Errorf("rcode %s", dns.RcodeToString[r.Rcode])
			}
			var got []string
			for _, g := range l.granter.Grants() {
				for _, a := range g.Addrs {
					got = append(got, a.String())
				}
			}
			equal(t, "grants", got, tt.grants)
			if all := r.String(); strings.Contains(all, forged) || strings.Contains(all, "2001:db8::66") {
				t.Errorf("the pod was told the forged address:\n%s", all)
			}
			diff.Equal(t, tt.wrong, l.s.Stats().WrongReplies, "wrong replies")
		})
	}
}

// TestThousandsOfRecords: addresses beyond the bound are neither granted nor in the
// reply.
func TestThousandsOfRecords(t *testing.T) {
	const many = 3500
	big := func(m *dns.Msg, tcp bool) [][]byte {
		if !tcp {
			return [][]byte{says(m, func(r *dns.Msg) { r.Truncated = true })}
		}
		return [][]byte{says(m, func(r *dns.Msg) {
			r.Compress = true
			for i := range many {
				r.Answer = append(r.Answer, &dns.A{
					Hdr: dns.RR_Header{Name: m.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60},
					A:   netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}).AsSlice(),
				})
			}
		})}
	}
	l := newLab(t, nil)
	up := startScript(t, big)
	l.live(zoneOf(up))
	m := newQuery("www.example.org", dns.TypeA)
	m.SetEdns0(4096, false)
	r := l.send("10.1.0.2", m)
	g := l.granter.Grants()
	if len(g) != 1 || len(g[0].Addrs) != 128 || len(r.Answer) != 128 {
		t.Fatalf("%d grants, %d records", len(g), len(r.Answer))
	}
	if up.TCP.Load() != 1 || l.s.Stats().AddressesOver != many-128 {
		t.Errorf("asked over TCP %d times, %+v", up.TCP.Load(), l.s.Stats())
	}
}

func TestForgedOnlyEndsInServfail(t *testing.T) {
	l := newLab(t, nil)
	z := zoneOf(startScript(t, func(m *dns.Msg, _ bool) [][]byte {
		return [][]byte{says(m, func(r *dns.Msg) { r.Id ^= 0x5555 }, "www.example.org. 60 IN A "+forged)}
	}))
	z.Deadline = 2 * time.Second
	l.live(z)
	r := l.ask("10.1.0.2", "www.example.org", dns.TypeA)
	if r.Rcode != dns.RcodeServerFailure || len(l.granter.Grants()) != 0 {
		t.Errorf("rcode %d, grants %v", r.Rcode, l.granter.Grants())
	}
	if rec := l.log.last(t); rec.Verdict != audit.Failed {
		t.Errorf("verdict %v", rec.Verdict)
	}
}

// TestQuestionWithADotInALabel: www\.example.org is not www.example.org.
func TestQuestionWithADotInALabel(t *testing.T) {
	l := newLab(t, nil)
	l.live(zoneOf(startScript(t, func(m *dns.Msg, _ bool) [][]byte {
		return [][]byte{says(m, nil, m.Question[0].Name+" 60 IN A "+forged)}
	})))
	l.ask("10.1.0.2", `www\.example.org`, dns.TypeA)
	if len(l.granter.Grants()) != 0 || l.log.last(t).Verdict != audit.Unmatched {
		t.Errorf("grants %v, record %+v", l.granter.Grants(), l.log.last(t))
	}
}
