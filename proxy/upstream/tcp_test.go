package upstream

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/upstreamtest"
)

// tcpServer is an upstream over TCP alone; serve has each connection, whose number
// counts from 1, and closes it when it returns.
type tcpServer struct {
	addr        netip.AddrPort
	connections atomic.Int64
}

func startTCP(t testing.TB, serve func(c net.Conn, number int64)) *tcpServer {
	t.Helper()
	ln, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(loopback))
	fatal.If(t, err)
	s := &tcpServer{addr: ln.Addr().(*net.TCPAddr).AddrPort()}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			n := s.connections.Add(1)
			go func() { defer c.Close(); serve(c, n) }()
		}
	}()
	return s
}

// overStreams is an upstream that is asked over TCP; ask returns the address of the
// answer or the error.
func overStreams(t testing.TB, to netip.AddrPort) (*upstream, func(qname string, within time.Duration) (string, error)) {
	t.Helper()
	u := newUpstream(to, new(Pool))
	t.Cleanup(u.close)
	return u, func(qname string, within time.Duration) (string, error) {
		end := time.Now().Add(within)
		m, err := u.exchange(askFor(t, qname), bounds{udp: end, tcp: end, forceTCP: true})
		if err != nil {
			return "", err
		}
		if len(m.Answer) != 1 {
			return fmt.Sprint(len(m.Answer)), nil
		}
		return m.Answer[0].(*dns.A).A.String(), nil
	}
}

// answerUntil answers every query with its name's address, until it is dead.
func answerUntil(dead *atomic.Bool) func(c net.Conn, _ int64) {
	return func(c net.Conn, _ int64) {
		r := bufio.NewReader(c)
		for {
			q, err := upstreamtest.ReadTCP(r)
			if err != nil {
				return
			}
			n := q.Question[0].Name
			if dead.Load() {
				continue
			}
			if _, err := c.Write(upstreamtest.Frame(upstreamtest.Says(q, nil, n+" 60 IN A "+addressFor(n)))); err != nil {
				return
			}
		}
	}
}

func TestConnectionIsUsedAgain(t *testing.T) {
	s := startTCP(t, answerUntil(new(atomic.Bool)))
	u, ask := overStreams(t, s.addr)
	for i := range 50 {
		n := fmt.Sprintf("n%d.test", i)
		if got, err := ask(n, time.Minute); err != nil || got != addressFor(n+".") {
			t.Fatalf("%s, %v", got, err)
		}
	}
	diff.Equal(t, 1, s.connections.Load(), "connections")
	u.conns.mu.Lock()
	u.conns.idle[0].since -= connIdle
	u.conns.mu.Unlock()
	u.wake(0)
	fatal.Await(t, "an idle connection stays", func() bool { return u.conns.count() == 0 })
}

// TestQueriesOverTCPAreIndependent: many at a time are answered by their name, in pieces, and a slow
// one delays no other. Few connections stay.
func TestQueriesOverTCPAreIndependent(t *testing.T) {
	gate := make(chan struct{})
	s := startTCP(t, func(c net.Conn, _ int64) {
		for r := bufio.NewReader(c); ; {
			q, err := upstreamtest.ReadTCP(r)
			if err != nil {
				return
			}
			n := q.Question[0].Name
			if strings.HasPrefix(n, "slow") {
				<-gate
			}
			wire := upstreamtest.Frame(upstreamtest.Says(q, nil, n+" 60 IN A "+addressFor(n)))
			for at := 0; at < len(wire); at += 7 {
				_, _ = c.Write(wire[at:min(at+7, len(wire))])
			}
		}
	})
	u, ask := overStreams(t, s.addr)
	all := func(name string) *sync.WaitGroup {
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				n := fmt.Sprintf("%s%d.test", name, i)
				if got, err := ask(n, time.Minute); err != nil || got != addressFor(n+".") {
					t.Errorf("%s: %s, %v", n, got, err)
				}
			})
		}
		return &wg
	}
	slow := all("slow")
	all("quick").Wait()
	close(gate)
	slow.Wait()
	fatal.Await(t, "many connections stay", func() bool { return u.conns.count() <= maxIdle })
}

// TestClosedWhileIdle: the server ends connections as it likes, with or without a
// word, and a query on one of them is asked once more on a new one.
func TestClosedWhileIdle(t *testing.T) {
	for _, reset := range []bool{false, true} {
		s := startTCP(t, func(c net.Conn, number int64) {
			r := bufio.NewReader(c)
			q, err := upstreamtest.ReadTCP(r)
			if err != nil {
				return
			}
			n := q.Question[0].Name
			_, _ = c.Write(upstreamtest.Frame(upstreamtest.Says(q, nil, n+" 60 IN A "+addressFor(n))))
			if number%2 == 1 { // it closes when the next query comes, as a race would
				_, _ = upstreamtest.ReadTCP(r)
			}
			if reset {
				_ = c.(*net.TCPConn).SetLinger(0)
			}
		})
		_, ask := overStreams(t, s.addr)
		for i := range 20 {
			n := fmt.Sprintf("n%d.test", i)
			if got, err := ask(n, time.Minute); err != nil || got != addressFor(n+".") {
				t.Errorf("reset %v: %s, %v", reset, got, err)
			}
		}
		if n := s.connections.Load(); n < 10 || n > 20 {
			t.Errorf("%d connections", n)
		}
	}
}

// TestConnectionThatIsAlwaysClosed: a query is asked again once, and not for ever.
func TestConnectionThatIsAlwaysClosed(t *testing.T) {
	s := startTCP(t, func(c net.Conn, _ int64) { _, _ = upstreamtest.ReadTCP(bufio.NewReader(c)) })
	_, ask := overStreams(t, s.addr)
	if got, err := ask("www.example.org", time.Minute); !errors.Is(err, io.EOF) {
		t.Errorf("%s, %v", got, err)
	}
	diff.Equal(t, 1, s.connections.Load(), "connections for the first query on one")
}

// TestOneDirectionFails: an upstream that takes everything and says nothing, or takes nothing,
// costs a query its time and no more, and no connection stays.
func TestOneDirectionFails(t *testing.T) {
	for name, serve := range map[string]func(c net.Conn, _ int64){
		"says nothing":  func(c net.Conn, _ int64) { _, _ = io.Copy(io.Discard, c) },
		"reads nothing": func(c net.Conn, _ int64) { time.Sleep(5 * time.Second) },
		"says a part":   func(c net.Conn, _ int64) { _, _ = c.Write([]byte{0, 100, 1}); _, _ = io.Copy(io.Discard, c) },
	} {
		s := startTCP(t, serve)
		u, ask := overStreams(t, s.addr)
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				began := time.Now()
				_, err := ask(fmt.Sprintf("n%d.test", i), 300*time.Millisecond)
				if took := time.Since(began); !errors.Is(err, os.ErrDeadlineExceeded) || took < 290*time.Millisecond || took > 30*time.Second {
					t.Errorf("%s: %v after %v", name, err, took)
				}
			})
		}
		wg.Wait()
		fatal.Await(t, name+": a connection that says nothing is kept", func() bool { return u.conns.count() == 0 })
	}
}

// TestLengthsOverTCP: the longest answer is read completely, a length too short for a
// message ends the connection, and a length without data allocates nothing.
func TestLengthsOverTCP(t *testing.T) {
	s := startTCP(t, func(c net.Conn, _ int64) {
		r := bufio.NewReader(c)
		for {
			q, err := upstreamtest.ReadTCP(r)
			if err != nil {
				return
			}
			wire := upstreamtest.Says(q, func(m *dns.Msg) {
				m.Compress = true
				for range 4094 {
					m.Answer = append(m.Answer, &dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: 1}, A: net.IP{192, 0, 2, 1}})
				}
			})
			if _, err := c.Write(upstreamtest.Frame(wire)); err != nil {
				return
			}
		}
	})
	_, ask := overStreams(t, s.addr)
	for range 3 {
		if got, err := ask("a.test", time.Minute); err != nil || got != "4094" {
			t.Errorf("%s, %v", got, err)
		}
	}
	for length := range wire.HeaderBytes {
		s := startTCP(t, func(c net.Conn, _ int64) {
			_, _ = upstreamtest.ReadTCP(bufio.NewReader(c))
			_, _ = c.Write(binary.BigEndian.AppendUint16(nil, uint16(length)))
			_, _ = io.Copy(io.Discard, c)
		})
		u, ask := overStreams(t, s.addr)
		if _, err := ask("a.test", time.Minute); !errors.Is(err, errMalformed) {
			t.Errorf("length %d: %v", length, err)
		}
		fatal.Await(t, "the connection stays", func() bool { return u.conns.count() == 0 })
	}
}

// TestWrongAnswersOverTCP: a wrong answer is not accepted, and ends the query immediately.
func TestWrongAnswersOverTCP(t *testing.T) {
	for name, lie := range map[string]func(q *dns.Msg) []byte{
		"another id": func(q *dns.Msg) []byte { return upstreamtest.Says(q, func(r *dns.Msg) { r.Id++ }) },
		"another question": func(q *dns.Msg) []byte {
			return upstreamtest.Says(q, func(r *dns.Msg) { r.Question[0].Name = "x.test." })
		},
		"truncated": func(q *dns.Msg) []byte { return upstreamtest.Says(q, func(r *dns.Msg) { r.Truncated = true }) },
		"unreadable": func(q *dns.Msg) []byte {
			w := upstreamtest.Says(q, nil, "a.test. 60 IN A 192.0.2.1")
			return w[:len(w)-2]
		},
		"a query": func(q *dns.Msg) []byte { return upstreamtest.Says(q, func(r *dns.Msg) { r.Response = false }) },
	} {
		s := startTCP(t, func(c net.Conn, _ int64) {
			q, err := upstreamtest.ReadTCP(bufio.NewReader(c))
			if err != nil {
				return
			}
			_, _ = c.Write(upstreamtest.Frame(lie(q)))
			_, _ = io.Copy(io.Discard, c)
		})
		u, ask := overStreams(t, s.addr)
		if got, err := ask("a.test", time.Minute); !errors.Is(err, errMalformed) || u.stats.WrongReplies.Load() != 1 {
			t.Errorf("%s: %s, %v, %d wrong", name, got, err, u.stats.WrongReplies.Load())
		}
	}
}

func TestRefusedOverTCP(t *testing.T) {
	_, ask := overStreams(t, netip.MustParseAddrPort("127.0.0.1:1"))
	if _, err := ask("a.test", time.Minute); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error(err)
	}
}

// TestConnectionsAreBounded: beyond the bound there is an error.
func TestConnectionsAreBounded(t *testing.T) {
	s := startTCP(t, answerUntil(new(atomic.Bool)))
	u, ask := overStreams(t, s.addr)
	opened := func(n int) {
		u.conns.mu.Lock()
		defer u.conns.mu.Unlock()
		u.conns.open += n
	}
	opened(maxConns - 1)
	if _, err := ask("a.test", time.Minute); err != nil {
		t.Error(err)
	}
	for _, fresh := range []bool{false, true} {
		opened(1)
		u.conns.mu.Lock()
		u.conns.drain()
		u.conns.mu.Unlock()
		a := newAsked(t, u, "a.test")
		u.conns.send(&a.exchange, fresh)
		if !a.ended() || !errors.Is(a.err, errConns) {
			t.Errorf("fresh %v: %v", fresh, a.err)
		}
	}
	opened(-maxConns - 1)
}
