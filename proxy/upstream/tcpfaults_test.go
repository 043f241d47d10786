package upstream

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/testkit/upstreamtest"
)

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

// TestConnectionsAreBounded: there is an error, and not one connection more.
func TestConnectionsAreBounded(t *testing.T) {
	s := startTCP(t, func(c net.Conn, _ int64) { _, _ = io.Copy(io.Discard, c) })
	u, _ := overStreams(t, s.addr)
	var all []*asked
	put := func(alone bool) *asked {
		a := newAsked(t, u, "a.test")
		u.conns.send(&a.exchange, alone)
		return a
	}
	for range maxConns * connQueries {
		all = append(all, put(false))
	}
	for range connsAlone - maxConns {
		all = append(all, put(true))
	}
	for _, alone := range []bool{false, true} {
		if p := put(alone); !p.ended() || !errors.Is(p.err, errConns) {
			t.Errorf("alone %v: %v", alone, p.err)
		}
	}
	if n := u.conns.count(); n != connsAlone {
		t.Errorf("%d connections", n)
	}
	u.close()
	for _, p := range all {
		if _, err := p.wait(); err == nil {
			t.Fatal("answered by nobody")
		}
	}
}

// TestHalfAMessage: an answer that does not come to its end ends the connection,
// before it has kept the others for long.
func TestHalfAMessage(t *testing.T) {
	s := startTCP(t, func(c net.Conn, _ int64) {
		_, _ = upstreamtest.ReadTCP(bufio.NewReader(c))
		for range 1000 { // a byte now and then is no message
			if _, err := c.Write([]byte{1}); err != nil {
				return
			}
			time.Sleep(connMessage / 10)
		}
	})
	_, ask := overStreams(t, s.addr)
	began := time.Now()
	_, err := ask("a.test", 200*time.Second)
	if took := time.Since(began); !errors.Is(err, os.ErrDeadlineExceeded) || took < connMessage || took > 50*connMessage {
		t.Errorf("%v after %v", err, took)
	}
}
