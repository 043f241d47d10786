package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/testkit/fatal"
)

func TestQuery(t *testing.T) {
	for _, name := range []string{"n17.w1.new.bench.test", "www.example.org.", "a"} {
		var m dns.Msg
		if err := m.Unpack(Query(nil, 4711, name)); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if m.Id != 4711 || m.Response || !m.RecursionDesired || len(m.Question) != 1 || m.Question[0] != (dns.Question{Name: dns.Fqdn(name), Qtype: dns.TypeA, Qclass: dns.ClassINET}) {
			t.Errorf("%s became %v", name, &m)
		}
		if o := m.IsEdns0(); o == nil || o.UDPSize() != udpSize {
			t.Errorf("%s: EDNS is %v", name, o)
		}
	}
}

func TestReply(t *testing.T) {
	r := new(dns.Msg).SetRcode(new(dns.Msg).SetQuestion("www.example.org.", dns.TypeA), dns.RcodeServerFailure)
	r.Id = 77
	wire, err := r.Pack()
	fatal.If(t, err)
	if id, rcode, ok := reply(wire); !ok || id != 77 || rcode != dns.RcodeServerFailure {
		t.Errorf("%d, %d, %t", id, rcode, ok)
	}
	if _, _, ok := reply(wire[:11]); ok {
		t.Error("eleven bytes are no reply")
	}
	if _, _, ok := reply(Query(nil, 1, "www.example.org")); ok {
		t.Error("a query is no reply")
	}
}

// question is the latest with the id of those sent, as a search backwards finds it.
func TestQuestionTwin(t *testing.T) {
	for range 20_000 {
		sent, id := rand.IntN(3*ids), uint16(rand.Uint32())
		want := -1
		for n := sent - 1; n >= 0 && n > sent-1-ids; n-- {
			if uint16(n) == id {
				want = n
				break
			}
		}
		if got := question(id, sent); got != want && (want >= 0 || got >= 0) {
			t.Fatalf("id %d of %d sent: question %d, want %d", id, sent, got, want)
		}
	}
}

// room is what a socket keeps of a machine that stands still: the kernel doubles it, to some 500
// packets, which are more than any Plan here has.
const room = 208 << 10

// server answers on the loopback as a function says: nil is silence.
func server(t *testing.T, answer func(n int, query []byte) []byte) []net.Conn {
	t.Helper()
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	fatal.If(t, err)
	t.Cleanup(func() { c.Close() })
	fatal.If(t, c.SetReadBuffer(room))
	go func() {
		buf := make([]byte, 2048)
		for n := 0; ; n++ {
			size, from, err := c.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			if r := answer(n, buf[:size]); r != nil {
				_, _ = c.WriteToUDPAddrPort(r, from)
			}
		}
	}()
	var conns []net.Conn
	for range 3 {
		conn, err := net.Dial("udp", c.LocalAddr().String())
		fatal.If(t, err)
		fatal.If(t, conn.(*net.UDPConn).SetReadBuffer(room))
		conns = append(conns, conn)
	}
	return conns
}

func echo(query []byte) []byte {
	query[2] |= 0x80
	return query
}

func name(n int) string { return fmt.Sprintf("n%d.example.org", n) }

func TestRun(t *testing.T) {
	conns := server(t, func(_ int, q []byte) []byte { return echo(q) })
	began := time.Now()
	r, err := Run(context.Background(), conns, Plan{Rate: 1000, Count: 300, Name: name, Patience: time.Minute, Delay: 50 * time.Millisecond})
	if err != nil || r.Sent != 300 || r.Lost != 0 || r.Bad != 0 || len(r.Latencies) != 300 {
		t.Fatalf("%d sent, %d lost, %d bad, %d good, %v", r.Sent, r.Lost, r.Bad, len(r.Latencies), err)
	}
	if took := time.Since(began); took < 349*time.Millisecond {
		t.Errorf("300 questions at 1000 a second, 50 ms late, took %v", took)
	}
	for i, l := range r.Latencies {
		if l <= 0 || i > 0 && l < r.Latencies[i-1] {
			t.Fatalf("latency %d is %v", i, l)
		}
	}
}

// Lost are those without an answer, bad those with an error; an answer to an id that
// was never asked, junk, and a second answer count for nothing.
func TestRunCounts(t *testing.T) {
	conns := server(t, func(n int, q []byte) []byte {
		switch n % 5 {
		case 0:
			return nil
		case 1:
			q[3] |= dns.RcodeServerFailure
		case 2:
			return []byte("junk")
		case 3:
			q[0] ^= 0x80
		}
		return echo(q)
	})
	r, err := Run(context.Background(), conns, Plan{Rate: 2000, Count: 100, Name: name, Patience: 2 * time.Second})
	if err != nil || r.Sent != 100 || r.Lost != 60 || r.Bad != 20 || len(r.Latencies) != 20 {
		t.Errorf("%d sent, %d lost, %d bad, %d good, %v", r.Sent, r.Lost, r.Bad, len(r.Latencies), err)
	}
}

// A server that stalls is charged for every question that was due meanwhile, not
// for one alone.
func TestRunChargesStalls(t *testing.T) {
	const stall = time.Second // its questions fill less than half of a receive queue
	conns := server(t, func(n int, q []byte) []byte {
		if n == 50 {
			time.Sleep(stall)
		}
		return echo(q)
	})
	r, err := Run(context.Background(), conns, Plan{Rate: 100, Count: 300, Name: name, Patience: time.Minute})
	if err != nil || r.Lost != 0 {
		t.Fatalf("%d lost, %v", r.Lost, err)
	}
	late := 0
	for _, l := range r.Latencies {
		if l > 500_000 {
			late++
		}
	}
	// Of the 100 questions of the stall the first 50 waited for more than 500 ms.
	if late < 45 {
		t.Errorf("only %d answers were late", late)
	}
	// The first waits longest, but those after it by 10 ms less each only.
	if r.Worst < 490*time.Millisecond || r.Worst > 1500*time.Millisecond {
		t.Errorf("the worst is the question that was due after %v, not one of the first of the stall", r.Worst)
	}
}

func TestRunEndsEarly(t *testing.T) {
	conns := server(t, func(_ int, q []byte) []byte { return echo(q) })
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel)
	r, err := Run(ctx, conns, Plan{Rate: 100, Count: 1000, Name: name, Patience: 100 * time.Millisecond})
	if !errors.Is(err, context.Canceled) || r.Sent >= 1000 {
		t.Errorf("%d sent, %v", r.Sent, err)
	}
}

func TestRunRefuses(t *testing.T) {
	for what, p := range map[string]Plan{
		"no rate":       {Count: 1, Patience: time.Second},
		"nothing":       {Rate: 1, Patience: time.Second},
		"no patience":   {Rate: 1, Count: 1},
		"too few ids":   {Rate: 70_000, Count: 1, Patience: time.Second},
		"long patience": {Rate: 10_000, Count: 1, Patience: 10 * time.Second},
	} {
		conns := server(t, func(int, []byte) []byte { return nil })
		if _, err := Run(context.Background(), conns, p); err == nil {
			t.Errorf("%s was carried out", what)
		}
		if _, err := conns[0].Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: a socket stays open: %v", what, err)
		}
	}
}

func TestRunWantsUDP(t *testing.T) {
	a, b := net.Pipe()
	defer b.Close()
	if _, err := Run(context.Background(), []net.Conn{a}, Plan{Rate: 1, Count: 1, Name: name, Patience: time.Second}); err == nil {
		t.Error("a pipe was used")
	}
}
