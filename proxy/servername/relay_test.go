package servername

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

var answer = record(handshake, message(serverHello, make([]byte, 70)))

// answered is pair with the server's first bytes.
func (l *lab) answered() (client, server *net.TCPConn) {
	l.Helper()
	client, server = l.pair()
	fatal.If(l, write(server, answer))
	got := make([]byte, len(answer))
	_, err := io.ReadFull(client, got)
	fatal.If(l, err)
	return client, server
}

func expect(t testing.TB, c net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("got %q, %v; want %q", got, err, want)
	}
}

func expectEnd(t testing.TB, c net.Conn) {
	t.Helper()
	if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Fatalf("%d bytes, %v; want the end", n, err)
	}
}

func TestDeniedWithoutHello(t *testing.T) {
	l := newLab(t, corefile.DefaultRelayLimits)
	l.judge.change(func(j *judge) { j.verdict = policy.DenyFlow })
	l.refused()
	d := l.denial()
	diff.Equal(t, ReasonPolicy, d.Reason)
	diff.Equal(t, "127.0.1.1", d.Source.Addr().String())
	diff.Equal(t, l.to(), d.Dialled)
	l.refused("127.0.1.9") // no pod
	diff.Equal(t, policy.PodRef{}, l.denial().Pod)
	l.quiet()
}

// TestUnread: the server may speak first where a plain rule allows the connection.
func TestUnread(t *testing.T) {
	l := newLab(t, corefile.DefaultRelayLimits)
	l.judge.change(func(j *judge) { j.verdict = policy.AllowFlow })
	c := l.dial()
	s := l.accepted()
	fatal.If(t, write(s, []byte("220 ready\r\n")))
	expect(t, c, "220 ready\r\n")
	fatal.If(t, write(c, []byte("HELO\r\n")))
	expect(t, s, "HELO\r\n")
	diff.Equal(t, 1, l.Stats().Unread)
}

// TestCheckAlone: a name that is allowed by skipping the rule is not enough.
func TestCheckAlone(t *testing.T) {
	l := newLab(t, corefile.DefaultRelayLimits)
	l.judge.change(func(j *judge) { j.named = policy.AllowFlow })
	c := l.dial()
	fatal.If(t, write(c, helloFor("good.test")))
	d := l.denial()
	diff.Equal(t, ReasonServerName, d.Reason)
	diff.Equal(t, "good.test", d.ServerName)
	l.quiet()
}

func TestClaimedNameIsBounded(t *testing.T) {
	l := newLab(t, corefile.DefaultRelayLimits)
	fatal.If(t, write(l.dial(), modern(names(string(bytes.Repeat([]byte("x"), 3000))))))
	diff.Equal(t, maxClaimed, len(l.denial().ServerName))
}

func TestOwnDestinations(t *testing.T) {
	l := newLab(t, corefile.DefaultRelayLimits)
	for _, to := range []netip.AddrPort{l.at, netip.MustParseAddrPort("0.0.0.0:443"), netip.MustParseAddrPort("224.0.0.1:443"), netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), 0)} {
		l.lead(func(*net.TCPConn) (netip.AddrPort, error) { return to, nil })
		l.refused()
	}
	l.lead(original) // no translation
	l.refused()
	diff.Equal(t, 5, l.Stats().Misdirected)
	l.quiet()
}

func TestHalfClose(t *testing.T) {
	l := newLab(t, corefile.DefaultRelayLimits)
	c, s := l.answered()
	fatal.If(t, write(c, []byte("request")))
	fatal.If(t, c.CloseWrite())
	expect(t, s, "request")
	expectEnd(t, s)
	fatal.If(t, write(s, []byte("reply")))
	fatal.If(t, s.CloseWrite())
	expect(t, c, "reply")
	expectEnd(t, c)

	c, s = l.answered() // the server first
	fatal.If(t, s.CloseWrite())
	expectEnd(t, c)
	fatal.If(t, write(c, []byte("more")))
	fatal.If(t, c.Close())
	expect(t, s, "more")
	expectEnd(t, s)
	_ = s.Close()
	fatal.Await(t, "no connection is open", func() bool { return l.Stats().Connections == 0 })
}

// TestEndBeforeAnswer: a client that ends behind its hello is seen before the server answers.
func TestEndBeforeAnswer(t *testing.T) {
	l := newLab(t, corefile.DefaultRelayLimits)
	c, s := l.pair()
	fatal.If(t, c.CloseWrite())
	expectEnd(t, s)
	fatal.If(t, write(s, answer))
	expect(t, c, string(answer))

	for _, early := range []string{"", "early"} {
		c, s = l.pair()
		fatal.If(t, write(c, []byte(early)))
		time.Sleep(20 * time.Millisecond)
		reset(c)
		if !isReset(s) {
			t.Errorf("after %q: no reset", early)
		}
	}
}

func TestResets(t *testing.T) {
	l := newLab(t, corefile.DefaultRelayLimits)
	c, s := l.answered()
	reset(c)
	if !isReset(s) {
		t.Error("the server got no reset")
	}
	c, s = l.answered()
	reset(s)
	if !isReset(c) {
		t.Error("the client got no reset")
	}
	c, s = l.pair()
	reset(s)
	if !isReset(c) {
		t.Error("the client got no reset before the answer")
	}
	diff.Equal(t, 0, len(l.denied))
}

func TestRefusedDial(t *testing.T) {
	l := newLab(t, corefile.DefaultRelayLimits)
	_ = l.target.Close()
	c := l.dial()
	_ = write(c, helloFor("good.test"))
	if !isReset(c) {
		t.Error("no reset")
	}
	fatal.Await(t, "the failure is counted", func() bool { return l.Stats().DialFailures == 1 })
}

func TestDialling(t *testing.T) {
	l := newLab(t, corefile.DefaultRelayLimits)
	var asked []netip.AddrPort
	l.judge.onDialling(func(local, to netip.AddrPort) error {
		asked = append(asked, local, to)
		return nil
	})
	_, s := l.pair()
	diff.Error(t, []netip.AddrPort{netip.AddrPortFrom(netip.IPv4Unspecified(), addrPort(s.RemoteAddr()).Port()), l.to()}, asked)
	l.judge.onDialling(func(_, _ netip.AddrPort) error { return os.ErrPermission })
	c := l.dial()
	_ = write(c, helloFor("good.test"))
	if !isReset(c) {
		t.Error("no reset")
	}
	l.quiet()
}

// TestBulk: 64 MiB each way at a time arrive as they were sent.
func TestBulk(t *testing.T) {
	l := newLab(t, corefile.DefaultRelayLimits)
	c, s := l.answered()
	block := make([]byte, 1<<20)
	_, _ = rand.Read(block)
	const blocks = 64
	want := sha256.New()
	for range blocks {
		want.Write(block)
	}
	var wg sync.WaitGroup
	for _, ends := range [][2]*net.TCPConn{{c, s}, {s, c}} {
		wg.Go(func() {
			for range blocks {
				if err := write(ends[0], block); err != nil {
					t.Error(err)
				}
			}
			_ = ends[0].CloseWrite()
		})
		wg.Go(func() {
			got := sha256.New()
			if n, err := io.Copy(got, ends[1]); err != nil || n != blocks<<20 || !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
				t.Errorf("%d bytes, %v", n, err)
			}
		})
	}
	wg.Wait()
}

// TestSmallWindow: bytes arrive in order through the smallest windows that the kernel lets a socket have.
func TestSmallWindow(t *testing.T) {
	l := newLab(t, corefile.DefaultRelayLimits)
	c, s := l.answered()
	sent := make([]byte, 50000)
	_, _ = rand.Read(sent)
	for _, ends := range [][2]*net.TCPConn{{c, s}, {s, c}} {
		fatal.If(t, onSocket(ends[1], func(fd int) error {
			return errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1), unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_WINDOW_CLAMP, 1))
		}))
		go func() { _ = write(ends[0], sent) }()
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(ends[1], got); err != nil || !bytes.Equal(got, sent) {
			t.Error(err)
		}
	}
}

// TestSlowReader: what a client does not read stops the server, costs no other connection anything, and all of it arrives in the end.
func TestSlowReader(t *testing.T) {
	l := newLab(t, corefile.DefaultRelayLimits)
	c, s := l.answered()
	_ = s.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
	block, sent := make([]byte, 64<<10), 0
	for {
		n, err := s.Write(block)
		if sent += n; err != nil {
			break
		}
		if sent > 64<<20 {
			t.Fatal("nothing stopped the server")
		}
	}
	_, other := l.answered()
	_ = other
	_ = s.CloseWrite()
	_ = c.CloseWrite()
	time.Sleep(50 * time.Millisecond)
	diff.Equal(t, 2, l.Stats().Connections, "connections that count while a client does not read")
	if n, err := io.Copy(io.Discard, c); err != nil || int(n) != sent {
		t.Errorf("%d of %d bytes, %v", n, sent, err)
	}
	fatal.Await(t, "the connection ends", func() bool { return l.Stats().Connections == 1 })
}

// TestUnacknowledged: a connection that both sides have ended counts until its client has taken what was sent.
func TestUnacknowledged(t *testing.T) {
	l := newLab(t, corefile.DefaultRelayLimits)
	c, s := l.answered()
	fatal.If(t, c.SetReadBuffer(32<<10))
	const sent = 500 << 10
	fatal.If(t, write(s, make([]byte, sent)))
	_, _ = s.CloseWrite(), c.CloseWrite()
	expectEnd(t, s)
	time.Sleep(100 * time.Millisecond)
	diff.Equal(t, 1, l.Stats().Connections)
	if n, err := io.Copy(io.Discard, c); err != nil || n != sent {
		t.Errorf("%d bytes, %v", n, err)
	}
	fatal.Await(t, "the connection ends", func() bool { return l.Stats().Connections == 0 })
}

// TestUrgent: urgent data does not stop a connection, and its last byte stays urgent.
func TestUrgent(t *testing.T) {
	l := newLab(t, corefile.DefaultRelayLimits)
	c, s := l.answered()
	for i, ends := range [][2]*net.TCPConn{{c, s}, {s, c}} {
		fatal.If(t, write(ends[0], []byte("before")))
		fatal.If(t, onSocket(ends[0], func(fd int) error { return unix.Send(fd, []byte("!"), unix.MSG_OOB) }))
		time.Sleep(20 * time.Millisecond)
		fatal.If(t, write(ends[0], []byte("after")))
		expect(t, ends[1], "before")
		b := make([]byte, 1)
		fatal.Await(t, "the urgent byte arrives", func() bool {
			n := 0
			_ = onSocket(ends[1], func(fd int) (err error) {
				n, _, err = unix.Recvfrom(fd, b, unix.MSG_OOB)
				return err
			})
			return n == 1
		})
		diff.Equal(t, "!", string(b), i)
		expect(t, ends[1], "after")
	}
}

// TestKeepAlive: conntrack does not forget a connection that one side has ended, which takes a minute, while the other says nothing.
func TestKeepAlive(t *testing.T) {
	l := newLab(t, corefile.DefaultRelayLimits)
	l.answered()
	for _, c := range l.all() {
		for _, half := range []*net.TCPConn{c.client, c.server} {
			fatal.If(t, onSocket(half, func(fd int) error {
				on, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE)
				idle, err2 := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE)
				if on != 1 || idle > 30 {
					t.Errorf("keep-alive %d after %d s", on, idle)
				}
				return errors.Join(err, err2)
			}))
		}
	}
}

func TestClose(t *testing.T) {
	l := newLab(t, corefile.DefaultRelayLimits)
	c, s := l.answered()
	ctx, cancel := context.WithCancel(t.Context())
	closed := make(chan struct{})
	go func() {
		l.Close(ctx)
		close(closed)
	}()
	time.Sleep(100 * time.Millisecond)
	late, _ := l.answered() // it had been led here
	fatal.Await(t, "the address is not served", func() bool {
		nc, err := net.Dial("tcp", l.at.String())
		if err == nil {
			_ = nc.Close()
		}
		return errors.Is(err, unix.ECONNREFUSED)
	})
	fatal.If(t, write(c, []byte("still")))
	expect(t, s, "still")
	select {
	case <-closed:
		t.Fatal("closed with a connection open")
	default:
	}
	cancel()
	<-closed
	if !isReset(c) || !isReset(s) || !isReset(late) {
		t.Error("a half was not reset")
	}
	for shut := 0; shut < 2; {
		if l.denial().Reason == ReasonShutdown {
			shut++
		}
	}
}

// TestCloseWaits returns as soon as the last connection ended.
func TestCloseWaits(t *testing.T) {
	l := newLab(t, corefile.DefaultRelayLimits)
	c, s := l.answered()
	time.AfterFunc(1200*time.Millisecond, func() { _, _ = c.Close(), s.Close() })
	l.Close(t.Context())
	diff.Equal(t, 0, len(l.denied))
}

// TestFault: a fault ends one connection.
func TestFault(t *testing.T) {
	l := newLab(t, corefile.DefaultRelayLimits)
	c, s := l.answered()
	l.judge.onDialling(func(_, _ netip.AddrPort) error { panic("dialling") })
	bad := l.dial()
	fatal.If(t, write(bad, helloFor("good.test")))
	if !isReset(bad) {
		t.Error("no reset")
	}
	diff.Equal[any](t, "dialling", <-l.faults)
	fatal.If(t, write(c, []byte("still")))
	expect(t, s, "still")
}
