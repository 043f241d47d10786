package access

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/testkit/accesstest"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestPortIsTaken: a port that somebody has is an error, and none of the other
// addresses stays open.
func TestPortIsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	fatal.If(t, err)
	defer taken.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	fatal.If(t, err)
	free.Close()
	s := newServer(t, accesstest.NewAPI(), nil)
	s.o.Addresses = []netip.AddrPort{netip.MustParseAddrPort(free.Addr().String()), netip.MustParseAddrPort(taken.Addr().String())}
	if err := s.Run(t.Context(), http.NotFoundHandler()); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("got %v", err)
	}
	fatal.Await(t, "an address stays open", func() bool { // another program may have its port for a moment
		again, err := net.Listen("tcp", free.Addr().String())
		if err == nil {
			again.Close()
		}
		return err == nil
	})
}

// TestSeats: one address holds so many connections and no more; a seat that is given
// back is somebody else's.
func TestSeats(t *testing.T) {
	s := newConnLimiter()
	one, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for i := range connectionsOfOne {
		if !s.acquire(one) {
			t.Fatalf("connection %d is refused", i)
		}
	}
	if s.acquire(one) || !s.acquire(other) {
		t.Error("the bound of one address is not that")
	}
	s.release(one)
	if !s.acquire(one) {
		t.Error("a seat is lost")
	}
	for i := s.all; i < maxConnections; i++ {
		if !s.acquire(netip.AddrFrom4([4]byte{198, 51, 100, byte(i)})) {
			t.Fatalf("connection %d is refused", i)
		}
	}
	if s.acquire(netip.MustParseAddr("203.0.113.1")) {
		t.Error("more connections than the most")
	}
	if n := len(s.of); n != 2+maxConnections-connectionsOfOne-1 {
		t.Errorf("%d addresses are counted", n)
	}
}

// TestSeatsOfANetwork: the addresses of an IPv6 /64 are those of one caller, and so have the seats of one. Those of the
// node itself are not of its network.
func TestSeatsOfANetwork(t *testing.T) {
	s := newConnLimiter()
	for i := range connectionsOfOne {
		if !s.acquire(netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", i+1))) {
			t.Fatalf("connection %d is refused", i)
		}
	}
	if s.acquire(netip.MustParseAddr("2001:db8::ffff:1")) || !s.acquire(netip.MustParseAddr("2001:db8:0:1::1")) {
		t.Error("the bound of one /64 is not that")
	}
	s.release(netip.MustParseAddr("2001:db8::1"))
	if !s.acquire(netip.MustParseAddr("2001:db8::ffff:1")) {
		t.Error("a seat is lost")
	}
	for i := range connectionsOfOne + 1 {
		if !s.acquire(netip.IPv6Loopback()) {
			t.Fatalf("connection %d of the node is refused", i)
		}
	}
}

// TestTooManyConnections: connections beyond the bound are closed, and closed ones make
// room.
func TestTooManyConnections(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	fatal.If(t, err)
	defer l.Close()
	bounded := boundedListener{l, newConnLimiter(), newThrottle(time.Now, connectionRate, allConnectionRate)}
	accepted := make(chan net.Conn, 2*connectionsOfLocal)
	go func() {
		for {
			c, err := bounded.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		fatal.If(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	var held []net.Conn
	for range connectionsOfLocal {
		dial()
		held = append(held, <-accepted)
	}
	if _, err := dial().Read(make([]byte, 1)); err == nil {
		t.Error("a connection too many is served")
	}
	held[0].Close()
	held[0].Close() // twice gives one seat
	dial()
	<-accepted
	if _, err := dial().Read(make([]byte, 1)); err == nil {
		t.Error("a connection too many is served")
	}
}

func TestNewNeedsEverything(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("made of nothing")
	}
}
