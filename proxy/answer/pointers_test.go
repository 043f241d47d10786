package answer

import (
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/fatal"
	"github.com/namegate/namegate/proxy/wire"
)

// answerOf is an answer about one.test of the records, or with a response code in
// capitals. "+" puts a record into the additional section, "~" into the authority section.
func answerOf(t *testing.T, qtype uint16, texts ...string) *dns.Msg {
	t.Helper()
	m := new(dns.Msg)
	m.SetQuestion("one.test.", qtype)
	m.Response = true
	for _, text := range texts {
		if rcode, ok := dns.StringToRcode[text]; ok {
			m.Rcode = rcode
			continue
		}
		section := &m.Answer
		switch text[0] {
		case '+':
			section = &m.Extra
		case '~':
			section = &m.Ns
		}
		rr, err := dns.NewRR(strings.TrimLeft(text, "+~"))
		fatal.If(t, err)
		*section = append(*section, rr)
	}
	packet, err := m.Pack()
	if err != nil || m.Unpack(packet) != nil {
		t.Fatal(err)
	}
	return m
}

// TestPointersAreOfTheQuestion: records of other owners point nowhere.
func TestPointersAreOfTheQuestion(t *testing.T) {
	q := wire.Question{Name: name(t, "one.test"), Type: dns.TypeSRV, Class: dns.ClassINET}
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
		for _, p := range Pointers(q, answerOf(t, dns.TypeSRV, tt.says...), false) {
			if got = append(got, p.Name.String()); p.TTL != tt.ttl {
				t.Errorf("%q: for %d s", tt.says, p.TTL)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%q points at %v", tt.says, got)
		}
	}
}
