package answer

import (
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/diff"
)

func TestExtendedErrorIsPassedOn(t *testing.T) {
	query := newQuery("www.example.org", dns.TypeA)
	query.SetEdns0(1232, false)
	up := new(dns.Msg)
	up.SetReply(query)
	up.SetEdns0(4096, true)
	up.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeBlocked}, &dns.EDNS0_NSID{Code: dns.EDNS0NSID}}
	opt := Relay(query, up).IsEdns0()
	if len(opt.Option) != 1 || opt.Option[0].Option() != dns.EDNS0EDE || opt.Do() || opt.UDPSize() != wire.AdvertisedSize {
		t.Errorf("OPT %v", opt)
	}
	if r := Relay(newQuery("www.example.org", dns.TypeA), up); r.IsEdns0() != nil {
		t.Error("OPT to a client that sent none")
	}
}

func TestHeaderBits(t *testing.T) {
	query := newQuery("www.example.org", dns.TypeA)
	query.RecursionDesired, query.CheckingDisabled = false, true
	up := new(dns.Msg)
	up.SetReply(query)
	up.AuthenticatedData, up.RecursionAvailable, up.RecursionDesired = true, true, true
	r := Relay(query, up)
	if r.RecursionDesired || !r.CheckingDisabled || r.AuthenticatedData || !r.RecursionAvailable || !r.Response {
		t.Errorf("header %+v", r.MsgHdr)
	}
	query.AuthenticatedData = true
	if !Relay(query, up).AuthenticatedData {
		t.Error("AD is lost to a client that asked for it")
	}
}

func TestRestrictLeavesTheSharedMessageAlone(t *testing.T) {
	m := message(t, "www.example.org", dns.TypeHTTPS,
		"www.example.org. 9000 CNAME a.test.", "a.test. 9000 HTTPS 1 . ipv4hint=192.0.2.1,192.0.2.2", "x.test. 9000 A 192.0.2.66")
	before := m.String()
	query := newQuery("WWW.example.org", dns.TypeHTTPS)
	q, _ := ReadQuestion(m)
	c := Check(q, m, 64)
	r := Relay(query, m)
	Restrict(r, c.Addrs[:1], 60)
	diff.Equal(t, before, m.String(), "the message afterwards")
	if all := r.String(); strings.Contains(all, "192.0.2.2") || strings.Contains(all, "192.0.2.66") || strings.Contains(all, "9000") {
		t.Errorf("reply\n%s", all)
	}
}

func TestRestrictHints(t *testing.T) {
	for _, tt := range []struct {
		rr, want string // want "" drops the record
		keep     []string
	}{
		{"1 . alpn=h2 ipv4hint=192.0.2.1,192.0.2.2", `1 . alpn="h2" ipv4hint="192.0.2.2"`, []string{"192.0.2.2"}},
		{"1 . alpn=h2 ipv4hint=192.0.2.1 ipv6hint=2001:db8::1", `1 . alpn="h2" ipv6hint="2001:db8::1"`, []string{"2001:db8::1"}},
		{"1 . alpn=h2 ipv4hint=192.0.2.1", `1 . alpn="h2"`, nil},
		{"1 . mandatory=ipv4hint ipv4hint=192.0.2.1", "", nil},
		{"1 . mandatory=ipv4hint ipv4hint=192.0.2.1", `1 . mandatory="ipv4hint" ipv4hint="192.0.2.1"`, []string{"192.0.2.1"}},
		{"1 . alpn=h2", `1 . alpn="h2"`, nil},
		{"0 a.test.", "0 a.test.", nil},
	} {
		m := message(t, "www.example.org", dns.TypeHTTPS, "www.example.org. 60 HTTPS "+tt.rr)
		q, _ := ReadQuestion(m)
		var kept []wire.Address
		for _, a := range Check(q, m, 64).Addrs {
			for _, k := range tt.keep {
				if a.Addr.String() == k {
					kept = append(kept, a)
				}
			}
		}
		Restrict(m, kept, 3600)
		got := ""
		if len(m.Answer) == 1 {
			got = m.Answer[0].String()[strings.Index(m.Answer[0].String(), "HTTPS\t")+6:]
		}
		diff.Equal(t, tt.want, got, tt.rr, "with", tt.keep)
	}
}

func TestEncodingThatFailsIsServfail(t *testing.T) {
	query := newQuery("www.example.org", dns.TypeA)
	r := Error(query, dns.RcodeSuccess)
	r.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: "www.example.org.", Rrtype: dns.TypeA, Class: dns.ClassINET}, A: []byte{1, 2, 3}}}
	got := new(dns.Msg)
	if err := got.Unpack(Encode(query, r, true)); err != nil || got.Rcode != dns.RcodeServerFailure || got.Id != query.Id {
		t.Errorf("%v, %v", got, err)
	}
}
