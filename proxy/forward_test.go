package proxy

import (
	"errors"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/wire"
)

func newForward(t *testing.T, z corefile.Zone) (*forward, *counters) {
	t.Helper()
	stats := &counters{}
	f := new(forward)
	var ups []*upstream
	for _, to := range z.To {
		u := newUpstream(to, stats)
		t.Cleanup(u.close)
		ups = append(ups, u)
	}
	f.set(&z, ups, nil)
	return f, stats
}

func askFor(t testing.TB, qname string) wire.Query {
	return wire.Query{Question: wire.Question{Name: name(t, qname), Type: dns.TypeA, Class: dns.ClassINET}, Flags: wire.RD}
}

func answersWith(t *testing.T, f *forward, ip string) {
	t.Helper()
	got, err := f.resolve(askFor(t, "www.example.org"))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.msg.Answer) != 1 || got.msg.Answer[0].(*dns.A).A.String() != ip {
		t.Errorf("answer %v, want %s", got.msg.Answer, ip)
	}
}

func rcodeScript(rcode int) script {
	return func(q *dns.Msg, _ bool) [][]byte {
		return [][]byte{says(q, func(r *dns.Msg) { r.Rcode = rcode })}
	}
}

func TestForwardFailsOver(t *testing.T) {
	good := startScript(t, honest("192.0.2.1"))
	for _, tt := range []struct {
		name  string
		first script
	}{
		{"a silent upstream", silent},
		{"SERVFAIL", rcodeScript(dns.RcodeServerFailure)},
		{"REFUSED", rcodeScript(dns.RcodeRefused)},
		{"truncated, and nobody on TCP", func(q *dns.Msg, tcp bool) [][]byte {
			if tcp {
				return nil
			}
			return [][]byte{says(q, func(r *dns.Msg) { r.Truncated = true })}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, _ := newForward(t, zoneOf(startScript(t, tt.first), good))
			answersWith(t, f, "192.0.2.1")
		})
	}
}

func TestForwardToAClosedPort(t *testing.T) {
	z := zoneOf(startScript(t, honest("192.0.2.1")))
	z.To = append([]netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:1")}, z.To...)
	f, _ := newForward(t, z)
	answersWith(t, f, "192.0.2.1")
	z.To, z.Deadline, z.MaxFails = z.To[:1], 300*time.Millisecond, 0
	f, stats := newForward(t, z)
	if _, err := f.resolve(askFor(t, "www.example.org")); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("answered by nobody: %v", err)
	}
	// At 0, 50 and 150 ms, unless the machine is slow.
	if n := stats.UpstreamFailures.Load(); n < 2 || n > 3 {
		t.Errorf("%d tries, want three with rests between them", n)
	}
}

func TestForwardKeepsTheRefusalOfAll(t *testing.T) {
	f, _ := newForward(t, zoneOf(startScript(t, rcodeScript(dns.RcodeRefused)), startScript(t, silent)))
	got, err := f.resolve(askFor(t, "www.example.org"))
	if err != nil || got.msg.Rcode != dns.RcodeRefused {
		t.Errorf("%v, %v", got.msg, err)
	}
}

func TestForwardEndsByItsDeadline(t *testing.T) {
	z := zoneOf(startScript(t, silent))
	z.Timeout, z.Deadline = 100*time.Millisecond, 1500*time.Millisecond
	f, stats := newForward(t, z)
	began := time.Now()
	if _, err := f.resolve(askFor(t, "www.example.org")); err == nil {
		t.Error("answered by nobody")
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("took %v", took)
	}
	if n := stats.UpstreamQueries.Load(); n < 2 {
		t.Errorf("%d tries, want several", n)
	}
}

func TestForwardAsksAgainAfterALostPacket(t *testing.T) {
	var queries atomic.Int32
	up := startScript(t, func(q *dns.Msg, _ bool) [][]byte {
		if queries.Add(1) == 1 {
			return nil
		}
		return honest("192.0.2.1")(q, false)
	})
	f, _ := newForward(t, zoneOf(up))
	answersWith(t, f, "192.0.2.1")
}

func TestTruncatedIsAskedOverTCP(t *testing.T) {
	up := startScript(t, func(q *dns.Msg, tcp bool) [][]byte {
		if tcp {
			return honest("192.0.2.1")(q, true)
		}
		whole := says(q, func(r *dns.Msg) { r.Truncated = true }, q.Question[0].Name+" 60 IN A "+forged)
		return [][]byte{whole[:len(whole)-2]} // cut in the middle of the record, as some servers do
	})
	f, stats := newForward(t, zoneOf(up))
	answersWith(t, f, "192.0.2.1")
	if up.tcp.Load() != 1 || stats.UpstreamTCP.Load() != 1 || up.opts.Load() != 1 {
		t.Errorf("TCP %d, counted %d, with OPT %d", up.tcp.Load(), stats.UpstreamTCP.Load(), up.opts.Load())
	}
}

func TestWrongReplyOverTCPIsNotTaken(t *testing.T) {
	up := startScript(t, func(q *dns.Msg, tcp bool) [][]byte {
		if tcp {
			return [][]byte{says(q, func(r *dns.Msg) { r.Id++ }, q.Question[0].Name+" 60 IN A "+forged)}
		}
		return [][]byte{says(q, func(r *dns.Msg) { r.Truncated = true })}
	})
	z := zoneOf(up)
	z.Deadline = 300 * time.Millisecond
	f, stats := newForward(t, z)
	if got, err := f.resolve(askFor(t, "www.example.org")); err == nil {
		t.Errorf("took %v", got.msg)
	}
	if stats.WrongReplies.Load() == 0 {
		t.Error("no reply was counted as wrong")
	}
}

func TestOrderOfUpstreams(t *testing.T) {
	z := corefile.Zone{MaxFails: 2, To: []netip.AddrPort{
		netip.MustParseAddrPort("192.0.2.1:53"), netip.MustParseAddrPort("192.0.2.2:53"), netip.MustParseAddrPort("192.0.2.3:53")}}
	last := func(f *forward) (s string) {
		for _, u := range f.order(f.routes.Load()) {
			s += u.addr.Addr().String()[8:]
		}
		return s
	}
	z.Policy = corefile.Sequential
	f, _ := newForward(t, z)
	f.routes.Load().first[0].fails.Store(2)
	f.routes.Load().first[2].fails.Store(1)
	if got := last(f); got != "231" {
		t.Errorf("sequential with the first down: %s", got)
	}
	z.Policy = corefile.RoundRobin
	f, _ = newForward(t, z)
	if got := last(f) + " " + last(f) + " " + last(f) + " " + last(f); got != "123 231 312 123" {
		t.Errorf("round robin: %s", got)
	}
	z.Policy = corefile.Random
	f, _ = newForward(t, z)
	seen := map[string]bool{}
	for range 200 {
		seen[last(f)] = true
	}
	if len(seen) != 3 {
		t.Errorf("random: %v", seen)
	}
}

func TestProbeBringsAnUpstreamBack(t *testing.T) {
	up := startScript(t, honest("192.0.2.1"))
	z := zoneOf(up)
	f, _ := newForward(t, z)
	u := f.routes.Load().first[0]
	u.fails.Store(2)
	u.failed(attempt{maxFails: 2})
	await(t, "the upstream answers and is down", func() bool { return !u.down(2) })
}

func TestLongestZoneIsAsked(t *testing.T) {
	root, special := startScript(t, honest("192.0.2.1")), startScript(t, honest("192.0.2.2"))
	a, b := zoneOf(special), zoneOf(root)
	a.Name = name(t, "corp.test")
	l := newLab(t, nil)
	l.live(a, b)
	for q, want := range map[string]string{"x.corp.test": "192.0.2.2", "corp.test": "192.0.2.2", "notcorp.test": "192.0.2.1", "example.org": "192.0.2.1"} {
		r := l.ask("10.1.0.6", q, dns.TypeA)
		if len(r.Answer) != 1 || r.Answer[0].(*dns.A).A.String() != want {
			t.Errorf("%s: %v, want %s", q, r.Answer, want)
		}
	}
}

func TestAskOnTheWire(t *testing.T) {
	for _, a := range []wire.Query{
		{Question: wire.Question{Type: dns.TypeNS, Class: dns.ClassINET}},
		{Question: wire.Question{Name: name(t, "www.example.org"), Type: dns.TypeA, Class: dns.ClassINET}, Flags: wire.RD},
		{Question: wire.Question{Name: name(t, `a\.b.\000\255.test`), Type: 65280, Class: dns.ClassINET}, Flags: wire.RD | wire.CD | wire.AD | wire.DO},
	} {
		m := new(dns.Msg)
		if err := m.Unpack(a.Pack(0x1234)); err != nil {
			t.Fatalf("%+v: %v", a, err)
		}
		opt := m.IsEdns0()
		q, ok := readQuestion(m)
		if !ok || m.Id != 0x1234 || m.Response || q != a.Question || opt == nil || opt.UDPSize() != wire.AdvertisedSize {
			t.Errorf("%+v became %v", a, m)
		}
		if queryOf(q, m) != a {
			t.Errorf("read back as %+v, was %+v", queryOf(q, m), a)
		}
	}
}
