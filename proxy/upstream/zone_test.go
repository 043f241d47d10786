package upstream

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/upstreamtest"
)

func TestForwardFailsOver(t *testing.T) {
	good := upstreamtest.Start(t, upstreamtest.Honest("192.0.2.1"))
	for _, tt := range []struct {
		name     string
		maxFails int // 0: the next upstream is asked without a probe, and may be slow
		first    upstreamtest.Script
	}{
		{"a silent upstream", 2, upstreamtest.Silent},
		{"SERVFAIL", 0, upstreamtest.Rcode(dns.RcodeServerFailure)},
		{"REFUSED", 0, upstreamtest.Rcode(dns.RcodeRefused)},
		{"truncated, and nobody on TCP", 0, func(q *dns.Msg, tcp bool) [][]byte {
			if tcp {
				return nil
			}
			return [][]byte{upstreamtest.Says(q, func(r *dns.Msg) { r.Truncated = true })}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			z := patient(upstreamtest.Start(t, tt.first), good)
			z.MaxFails = tt.maxFails
			f, _ := newForward(t, z)
			answersWith(t, f, "192.0.2.1")
		})
	}
}

func TestForwardToAClosedPort(t *testing.T) {
	z := upstreamtest.Zone(upstreamtest.Start(t, upstreamtest.Honest("192.0.2.1")))
	z.To = append([]netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:1")}, z.To...)
	f, _ := newForward(t, z)
	answersWith(t, f, "192.0.2.1")
	// At 0, 50 and 150 ms. A slow machine may have one try in that time, and so gets more.
	z.To, z.Deadline, z.MaxFails = z.To[:1], 300*time.Millisecond, 0
	for most := uint64(3); ; z.Deadline, most = 2*z.Deadline, 2*most {
		f, stats := newForward(t, z)
		if _, err := f.resolve(askFor(t, "www.example.org")); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("answered by nobody: %v", err)
		}
		n := stats.Failures.Load()
		if n < 2 && z.Deadline < time.Minute {
			continue
		}
		if n < 2 || n > most {
			t.Errorf("%d tries in %v, want at most %d with rests between them", n, z.Deadline, most)
		}
		return
	}
}

func TestForwardKeepsTheRefusalOfAll(t *testing.T) {
	f, _ := newForward(t, upstreamtest.Zone(upstreamtest.Start(t, upstreamtest.Rcode(dns.RcodeRefused)), upstreamtest.Start(t, upstreamtest.Silent)))
	got, err := f.resolve(askFor(t, "www.example.org"))
	if err != nil || got.Msg.Rcode != dns.RcodeRefused {
		t.Errorf("%v, %v", got.Msg, err)
	}
}

func TestForwardEndsByItsDeadline(t *testing.T) {
	const deadline = 600 * time.Millisecond
	z := upstreamtest.Zone(upstreamtest.Start(t, upstreamtest.Silent), upstreamtest.Start(t, upstreamtest.Silent))
	z.Timeout, z.Deadline, z.MaxFails = deadline/3, deadline, 0
	f, stats := newForward(t, z)
	began := time.Now()
	if _, err := f.resolve(askFor(t, "www.example.org")); err == nil {
		t.Error("answered by nobody")
	}
	if took := time.Since(began); took < deadline || took > time.Minute {
		t.Errorf("took %v", took)
	}
	if n := stats.Queries.Load(); n < 1 || n > 3 || stats.Failures.Load() != n {
		t.Errorf("%d tries, want at most 3; %d failures", n, stats.Failures.Load())
	}
}

// TestTimeoutOfATry: the second upstream is asked after the zone's timeout, whatever that
// is, and the first is not asked twice.
func TestTimeoutOfATry(t *testing.T) {
	const slow, short = 600 * time.Millisecond, 100 * time.Millisecond
	for timeout, want := range map[time.Duration]string{short: "192.0.2.2", time.Minute: "192.0.2.1"} {
		first := upstreamtest.Start(t, func(q *dns.Msg, tcp bool) [][]byte {
			if timeout == short {
				return nil
			}
			time.Sleep(slow)
			return upstreamtest.Honest("192.0.2.1")(q, tcp)
		})
		second := upstreamtest.Start(t, upstreamtest.Honest("192.0.2.2"))
		z := patient(first, second)
		z.Timeout = timeout
		f, stats := newForward(t, z)
		began := time.Now()
		answersWith(t, f, want)
		if took := time.Since(began); took < min(slow, timeout) {
			t.Errorf("timeout %v: answered after %v", timeout, took)
		}
		rounds := max(second.UDP.Load(), 1) // more than one where the second has not answered in time
		if n := first.UDP.Load(); n != rounds || stats.Queries.Load()-stats.Failures.Load() != 1 {
			t.Errorf("timeout %v: the first was asked %d times in %d rounds; %d tries, %d failures", timeout, n, rounds, stats.Queries.Load(), stats.Failures.Load())
		}
	}
}

func TestForwardAsksAgainAfterALostPacket(t *testing.T) {
	var queries atomic.Int32
	up := upstreamtest.Start(t, func(q *dns.Msg, _ bool) [][]byte {
		if queries.Add(1) == 1 {
			return nil
		}
		return upstreamtest.Honest("192.0.2.1")(q, false)
	})
	f, _ := newForward(t, upstreamtest.Zone(up))
	answersWith(t, f, "192.0.2.1")
}

func TestTruncatedIsAskedOverTCP(t *testing.T) {
	up := upstreamtest.Start(t, func(q *dns.Msg, tcp bool) [][]byte {
		if tcp {
			return upstreamtest.Honest("192.0.2.1")(q, true)
		}
		whole := upstreamtest.Says(q, func(r *dns.Msg) { r.Truncated = true }, q.Question[0].Name+" 60 IN A "+forged)
		return [][]byte{whole[:len(whole)-2]} // cut in the middle of the record, as some servers do
	})
	f, stats := newForward(t, patient(up))
	answersWith(t, f, "192.0.2.1")
	if up.TCP.Load() != 1 || stats.TCP.Load() != 1 || up.Opts.Load() != 1 {
		t.Errorf("TCP %d, counted %d, with OPT %d", up.TCP.Load(), stats.TCP.Load(), up.Opts.Load())
	}
}

func TestOrderOfUpstreams(t *testing.T) {
	z := corefile.Zone{MaxFails: 2, To: []netip.AddrPort{
		netip.MustParseAddrPort("192.0.2.1:53"), netip.MustParseAddrPort("192.0.2.2:53"), netip.MustParseAddrPort("192.0.2.3:53")}}
	last := func(f *Zone) (s string) {
		for _, u := range f.order(f.routes.Load(), nil) {
			s += u.addr.Addr().String()[8:]
		}
		return s
	}
	z.Policy = corefile.Sequential
	f, _ := newForward(t, z)
	f.routes.Load().first[0].fails.Store(2)
	f.routes.Load().first[2].fails.Store(1)
	diff.Equal(t, "231", last(f), "sequential with the first down")
	z.Policy = corefile.RoundRobin
	f, _ = newForward(t, z)
	diff.Equal(t, "123 231 312 123", last(f)+" "+last(f)+" "+last(f)+" "+last(f), "round robin")
	z.Policy = corefile.Random
	f, _ = newForward(t, z)
	seen := map[string]bool{}
	for range 200 {
		seen[last(f)] = true
	}
	diff.Equal(t, 3, len(seen), "random", seen)
}

// TestAsk: a reply answers the question that was asked, however long it is; a query that is sent back, and the
// answer to another question, are none.
func TestAsk(t *testing.T) {
	for what, test := range map[string]struct {
		reply func(q *dns.Msg) *dns.Msg
		good  bool
	}{
		"an answer": {func(q *dns.Msg) *dns.Msg { return new(dns.Msg).SetReply(q) }, true},
		"a long answer": {func(q *dns.Msg) *dns.Msg {
			r := new(dns.Msg).SetReply(q)
			for range 40 {
				r.Answer = append(r.Answer, &dns.TXT{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeTXT, Class: dns.ClassINET}, Txt: []string{"a text of some length"}})
			}
			return r
		}, true},
		"the query": {func(q *dns.Msg) *dns.Msg { return q }, false},
		"another question": {func(q *dns.Msg) *dns.Msg {
			r := new(dns.Msg).SetReply(q)
			r.Question[0].Name = "other.test."
			return r
		}, false},
	} {
		server, err := net.ListenPacket("udp", "127.0.0.1:0")
		fatal.If(t, err)
		go func() {
			buf := make([]byte, 4096)
			for {
				n, from, err := server.ReadFrom(buf)
				q := new(dns.Msg)
				if err != nil || q.Unpack(buf[:n]) != nil {
					return
				}
				if out, err := test.reply(q).Pack(); err == nil {
					_, _ = server.WriteTo(out, from)
				}
			}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		q := new(dns.Msg).SetQuestion("www.example.org.", dns.TypeTXT)
		at := server.LocalAddr().(*net.UDPAddr).AddrPort()
		if _, err := Ask(ctx, new(net.Dialer), at, q, time.Second); (err == nil) != test.good {
			t.Errorf("%s: %v", what, err)
		}
		cancel()
		server.Close()
	}
}
