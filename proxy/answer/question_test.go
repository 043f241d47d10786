package answer

import (
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
