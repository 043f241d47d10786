package answer

import (
	"slices"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/policytest"
)

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
		if !slices.Equal(got, tt.want) {
			t.Errorf("%q points at %v", tt.says, got)
		}
	}
}
