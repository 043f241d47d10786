package echo

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/testkit/fatal"
)

func serve(t *testing.T) *Server {
	t.Helper()
	s, err := Serve("me", 0)
	fatal.If(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func dial(t *testing.T, network, host string, port int) net.Conn {
	t.Helper()
	c, err := net.Dial(network, net.JoinHostPort(host, fmt.Sprint(port)))
	fatal.If(t, err)
	t.Cleanup(func() { c.Close() })
	fatal.If(t, c.SetDeadline(time.Now().Add(time.Minute)))
	return c
}

func TestLinesComeBack(t *testing.T) {
	s := serve(t)
	c := dial(t, "tcp", "127.0.0.1", s.Port)
	r := bufio.NewReader(c)
	expect := func(want string) {
		t.Helper()
		if got, err := r.ReadString('\n'); err != nil || got != want {
			t.Errorf("got %q (%v), want %q", got, err, want)
		}
	}
	fmt.Fprintln(c, "one")
	expect("me " + c.LocalAddr().String() + "\n")
	expect("one\n")
	fmt.Fprintln(c, "two")
	expect("two\n")
}

func TestHTTP(t *testing.T) {
	s := serve(t)
	c := dial(t, "tcp", "127.0.0.1", s.Port)
	fmt.Fprint(c, "GET / HTTP/1.0\r\n\r\n")
	all, err := io.ReadAll(c)
	if err != nil && len(all) == 0 {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(all), "HTTP/1.0 200 OK\r\n") || !strings.HasSuffix(string(all), "\r\n\r\nme "+c.LocalAddr().String()+"\n") {
		t.Errorf("got %q", all)
	}
}

// With a socket for all addresses the answer has to come from the one that was
// dialled: a connected socket takes no other.
func TestUDPAnswersFromTheDialledAddress(t *testing.T) {
	s := serve(t)
	for _, host := range []string{"127.0.0.1", "127.0.0.9", "::1"} {
		c := dial(t, "udp", host, s.Port)
		fmt.Fprint(c, "one")
		buf := make([]byte, 256)
		n, err := c.Read(buf)
		if want := "me " + c.LocalAddr().String() + "\none"; err != nil || string(buf[:n]) != want {
			t.Errorf("from %s: %q (%v), want %q", host, buf[:n], err, want)
		}
	}
}

func TestClosedServerIsGone(t *testing.T) {
	s := serve(t)
	fatal.If(t, s.Close())
	if c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", s.Port)); err == nil {
		c.Close()
		t.Error("a closed server still accepts")
	}
}
