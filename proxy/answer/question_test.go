package answer

import (
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/policytest"
)

func TestAskOnTheWire(t *testing.T) {
	for _, a := range []wire.Query{
		{Question: wire.Question{Type: dns.TypeNS, Class: dns.ClassINET}},
		{Question: wire.Question{Name: policytest.Name("www.example.org"), Type: dns.TypeA, Class: dns.ClassINET}, Flags: wire.RD},
		{Question: wire.Question{Name: policytest.Name(`a\.b.\000\255.test`), Type: 65280, Class: dns.ClassINET}, Flags: wire.RD | wire.CD | wire.AD | wire.DO},
	} {
		m := new(dns.Msg)
		fatal.If(t, m.Unpack(a.Pack(0x1234)), a)
		opt := m.IsEdns0()
		q, ok := ReadQuestion(m)
		if !ok || m.Id != 0x1234 || m.Response || q != a.Question || opt == nil || opt.UDPSize() != wire.AdvertisedSize {
			t.Errorf("%+v became %v", a, m)
		}
		diff.Equal(t, a, ReadQuery(q, m), "read back")
	}
}

func TestNoOptionIsLongerThanThePacketHasRoom(t *testing.T) {
	for n := range 600 {
		opt := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}, Option: []dns.EDNS0{&dns.EDNS0_LOCAL{Code: 65001, Data: make([]byte, n)}}}
		if got := passedOn(opt); got != "" && len(got) != n+4 || len(got) > maxOptions || got == "" && n+4 <= maxOptions {
			t.Fatalf("an option of %d bytes is passed on as %d", n, len(got))
		}
	}
	longest := wire.Query{Question: wire.Question{Name: policytest.Name(strings.Repeat(strings.Repeat("x", 63)+".", 3) + strings.Repeat("y", 61))}, Options: strings.Repeat("o", maxOptions)}
	if n := len(longest.Pack(1)); n > 1232 {
		t.Errorf("a query of %d bytes", n)
	}
}

// TestPointersAreOfTheQuestion: records of other owners point nowhere.
func TestPointersAreOfTheQuestion(t *testing.T) {
	q := wire.Question{Name: policytest.Name("one.test"), Type: dns.TypeSRV, Class: dns.ClassINET}
	for _, tt := range []struct {
		says []string
		want []string
		ttl  uint32
	}{
		{[]string{"other.test. 60 IN SRV 0 0 1 host.test."}, nil, 0},
		{[]string{"+one.test. 60 IN SRV 0 0 1 host.test."}, nil, 0},
		{[]string{"one.test. 60 CH SRV 0 0 1 host.test."}, nil, 0},
		{[]string{"one.test. 60 IN MX 1 host.test."}, nil, 0},
		{[]string{"one.test. 60 IN SRV 0 0 1 one.test."}, nil, 0},
		{[]string{"one.test. 20 IN CNAME two.test.", "two.test. 60 IN SRV 0 0 1 host.test."}, []string{"host.test"}, 20},
		{[]string{"one.test. 60 IN CNAME two.test.", "two.test. 60 IN CNAME one.test.", "one.test. 60 IN SRV 0 0 1 host.test."}, nil, 0},
		{[]string{"NXDOMAIN", "other.test. 60 IN SRV 0 0 1 host.test."}, nil, 0},
	} {
		var got []string
		for _, p := range Pointers(q, message(t, "one.test", dns.TypeSRV, tt.says...), false) {
			if got = append(got, p.Name.String()); p.TTL != tt.ttl {
				t.Errorf("%q: for %d s", tt.says, p.TTL)
			}
		}
		diff.Error(t, tt.want, got, tt.says, "points at")
	}
}
