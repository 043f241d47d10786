package answer

import (
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/policytest"
)

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
