package cache

import (
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/answer"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/policytest"
	"github.com/namegate/namegate/testkit/wiretest"
)

const soa = "~test. 300 IN SOA ns.test. admin.test. 1 2 3 4 "

var toOne = wiretest.Query("one.test", dns.TypeA)

func TestLifetimeIsTheLeastTTLOrTheSOAs(t *testing.T) {
	plain := corefile.Cache{MaxTTL: time.Hour, NegativeTTL: 30 * time.Second}
	bounded := corefile.Cache{MinTTL: 20 * time.Second, MaxTTL: time.Minute, NegativeTTL: 10 * time.Second}
	for _, tt := range []struct {
		name  string
		cache corefile.Cache
		qtype uint16
		says  []string
		want  uint32
		ttls  []uint32 // of all records, afterwards
	}{
		{"the least of all", plain, dns.TypeA, []string{"one.test. 300 IN A 192.0.2.1", "one.test. 40 IN A 192.0.2.2"}, 40, []uint32{300, 40}},
		{"a CNAME counts", plain, dns.TypeA, []string{"one.test. 7 IN CNAME two.test.", "two.test. 40 IN A 192.0.2.2"}, 7, []uint32{7, 40}},
		{"the other sections count", plain, dns.TypeA, []string{"one.test. 300 IN A 192.0.2.1", "~test. 9 IN NS ns.test.", "+ns.test. 8 IN A 192.0.2.3"}, 8, []uint32{300, 9, 8}},
		{"TTL 0", plain, dns.TypeA, []string{"one.test. 0 IN A 192.0.2.1"}, 0, []uint32{0}},
		{"TTL with the top bit is 0", plain, dns.TypeA, []string{"one.test. 2147483648 IN A 192.0.2.1"}, 0, []uint32{0}},
		{"raised", bounded, dns.TypeA, []string{"one.test. 0 IN A 192.0.2.1"}, 20, []uint32{20}},
		{"lowered", bounded, dns.TypeA, []string{"one.test. 300 IN A 192.0.2.1"}, 60, []uint32{60}},
		{"NXDOMAIN without SOA", plain, dns.TypeA, []string{"NXDOMAIN"}, 0, nil},
		{"NXDOMAIN by the SOA's minimum", plain, dns.TypeA, []string{"NXDOMAIN", soa + "20"}, 20, []uint32{20}},
		{"NXDOMAIN by the SOA's TTL", plain, dns.TypeA, []string{"NXDOMAIN", "~test. 11 IN SOA ns.test. admin.test. 1 2 3 4 20"}, 11, []uint32{11}},
		{"NXDOMAIN by denial", plain, dns.TypeA, []string{"NXDOMAIN", soa + "300"}, 30, []uint32{30}},
		{"denial is not raised", bounded, dns.TypeA, []string{"NXDOMAIN", soa + "3"}, 3, []uint32{3}},
		{"denial 0", corefile.Cache{MaxTTL: time.Hour}, dns.TypeA, []string{"NXDOMAIN", soa + "20"}, 0, []uint32{0}},
		{"a minimum of 0", plain, dns.TypeA, []string{"NXDOMAIN", soa + "0"}, 0, []uint32{0}},
		{"NODATA", plain, dns.TypeAAAA, []string{soa + "20"}, 20, []uint32{20}},
		{"NODATA without SOA", plain, dns.TypeAAAA, []string{"~test. 9 IN NS ns.test."}, 0, []uint32{9}},
		{"NODATA behind a CNAME", plain, dns.TypeAAAA, []string{"one.test. 5 IN CNAME two.test.", soa + "20"}, 5, []uint32{5, 20}},
		{"NXDOMAIN behind a CNAME", plain, dns.TypeA, []string{"NXDOMAIN", "one.test. 300 IN CNAME two.test.", soa + "20"}, 20, []uint32{30, 20}},
		{"records of another type are none", plain, dns.TypeAAAA, []string{"one.test. 300 IN A 192.0.2.1"}, 0, []uint32{300}},
		{"any record answers ANY", plain, dns.TypeANY, []string{"one.test. 300 IN A 192.0.2.1"}, 300, []uint32{300}},
		{"SERVFAIL", plain, dns.TypeA, []string{"SERVFAIL", soa + "20"}, 0, []uint32{300}},
		{"REFUSED with records", plain, dns.TypeA, []string{"REFUSED", "one.test. 300 IN A 192.0.2.1"}, 0, []uint32{300}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := wiretest.Answer(t, wiretest.Query("one.test", tt.qtype), tt.says...)
			diff.Equal(t, tt.want, lifetime(wire.Question{Name: policytest.Name("one.test"), Type: tt.qtype, Class: dns.ClassINET}, m, &tt.cache), "seconds that it is kept")
			var ttls []uint32
			for _, rr := range slices.Concat(m.Answer, m.Ns, m.Extra) {
				ttls = append(ttls, rr.Header().Ttl)
			}
			diff.Error(t, tt.ttls, ttls, "the TTLs")
		})
	}
}

func TestTruncatedIsNotCached(t *testing.T) {
	m := wiretest.Answer(t, toOne, "one.test. 300 IN A 192.0.2.1")
	m.Truncated = true
	diff.Equal(t, 0, lifetime(wire.Question{Name: policytest.Name("one.test"), Type: dns.TypeA}, m, &corefile.Cache{MaxTTL: time.Hour}), "seconds that it is kept")
}

func TestOPTHasNoTTL(t *testing.T) {
	m := wiretest.Answer(t, toOne, "one.test. 300 IN A 192.0.2.1")
	m.SetEdns0(1232, true)
	flags := m.IsEdns0().Hdr.Ttl
	answer.BoundTTLs(m, 5, 60)
	if m.IsEdns0().Hdr.Ttl != flags || answer.MinTTL(m) != 60 {
		t.Errorf("OPT's flags are %x, were %x; the least TTL is %d", m.IsEdns0().Hdr.Ttl, flags, answer.MinTTL(m))
	}
}
