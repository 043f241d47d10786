package probe

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/cluster/echo"
	"github.com/namegate/namegate/testkit/fatal"
)

func TestClassify(t *testing.T) {
	op := func(err error) error {
		return &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", err)}
	}
	for _, c := range []struct {
		err  error
		want Class
	}{
		{op(syscall.ECONNREFUSED), Refused},
		{op(syscall.ECONNRESET), Reset},
		{op(syscall.EPIPE), Reset},
		{io.EOF, Reset},
		{op(syscall.EHOSTUNREACH), Prohibited},
		{op(syscall.EACCES), Prohibited},
		{op(syscall.ENETUNREACH), Unreachable},
		{os.ErrDeadlineExceeded, Timeout},
		{op(syscall.ETIMEDOUT), Timeout},
		{fmt.Errorf("dial: %w", op(syscall.ECONNREFUSED)), Refused},
		{errors.New("something else"), Failed},
	} {
		if got := Classify(c.err); got != c.want {
			t.Errorf("%v is %s, want %s", c.err, got, c.want)
		}
	}
}

func serve(t *testing.T) *echo.Server {
	t.Helper()
	s, err := echo.Serve("me", 0)
	fatal.If(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func TestDialReportsTheServer(t *testing.T) {
	s := serve(t)
	for _, network := range []string{"tcp", "udp"} {
		got := Dial(t.Context(), network, fmt.Sprintf("127.0.0.1:%d", s.Port))
		host, _, _ := net.SplitHostPort(got.From)
		if got.Class != OK || got.Server != "me" || host != "127.0.0.1" || got.Rounds != 1 {
			t.Errorf("%s: %+v", network, got)
		}
	}
}

func TestDialOfAClosedPort(t *testing.T) {
	s := serve(t)
	fatal.If(t, s.Close())
	for _, network := range []string{"tcp", "udp"} {
		if got := Dial(t.Context(), network, fmt.Sprintf("127.0.0.1:%d", s.Port)); got.Class != Refused || got.Error == "" {
			t.Errorf("%s to a closed port: %+v, want refused", network, got)
		}
	}
}

func TestHoldSeesTheEnd(t *testing.T) {
	s := serve(t)
	got := Hold(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", s.Port), time.Second, 10*time.Millisecond)
	if got.Class != OK || got.Rounds < 2 {
		t.Errorf("a connection that goes on: %+v, want several words", got)
	}
	// A server that answers once and then cuts.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	fatal.If(t, err)
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		buf := make([]byte, 256)
		n, _ := c.Read(buf)
		_, _ = c.Write(buf[:n])
		c.Close()
	}()
	got = Hold(t.Context(), "tcp", l.Addr().String(), time.Minute, time.Millisecond)
	if got.Class != Reset || got.Rounds != 1 {
		t.Errorf("a connection that is cut after a word: %+v, want reset after one round", got)
	}
}
