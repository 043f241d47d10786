package access

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/namegate/namegate/share"
	"github.com/namegate/namegate/testkit/accesstest"
	"github.com/namegate/namegate/testkit/diff"
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
	diff.Fails(t, "address already in use", s.Run(t.Context(), http.NotFoundHandler()))
	fatal.Await(t, "an address stays open", func() bool { // another program may have its port for a moment
		again, err := net.Listen("tcp", free.Addr().String())
		if err == nil {
			again.Close()
		}
		return err == nil
	})
}

// TestSlots: one address holds so many connections and no more; a slot that is given
// back is somebody else's.
func TestSlots(t *testing.T) {
	var s share.Slots[netip.Addr]
	one, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	release := slot(&s, one)
	for i := range connectionsOfOne - 1 {
		if slot(&s, one) == nil {
			t.Fatalf("connection %d is refused", i)
		}
	}
	if slot(&s, one) != nil || slot(&s, other) == nil {
		t.Error("the bound of one address is not that")
	}
	release()
	if slot(&s, one) == nil {
		t.Error("a slot is lost")
	}
	for i := range maxConnections - connectionsOfOne - 1 {
		if slot(&s, netip.AddrFrom4([4]byte{198, 51, 100, byte(i)})) == nil {
			t.Fatalf("connection %d is refused", i)
		}
	}
	if slot(&s, netip.MustParseAddr("203.0.113.1")) != nil {
		t.Error("more connections than the most")
	}
}

// TestSlotsOfANetwork: the addresses of an IPv6 /64 are those of one caller, and so have the slots of one. Those of
// the node itself are not of its network.
func TestSlotsOfANetwork(t *testing.T) {
	var s share.Slots[netip.Addr]
	release := slot(&s, netip.MustParseAddr("2001:db8::1"))
	for i := range connectionsOfOne - 1 {
		if slot(&s, netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", i+2))) == nil {
			t.Fatalf("connection %d is refused", i)
		}
	}
	if slot(&s, netip.MustParseAddr("2001:db8::ffff:1")) != nil || slot(&s, netip.MustParseAddr("2001:db8:0:1::1")) == nil {
		t.Error("the bound of one network is not that")
	}
	release()
	if slot(&s, netip.MustParseAddr("2001:db8::ffff:1")) == nil {
		t.Error("a slot is lost")
	}
	for i := range connectionsOfLocal {
		if slot(&s, netip.IPv6Loopback()) == nil {
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
	bounded := boundedListener{l, &share.Slots[netip.Addr]{}, newThrottle(time.Now, connectionRate, allConnectionRate)}
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
