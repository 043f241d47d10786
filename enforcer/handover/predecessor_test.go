package handover

import (
	"maps"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/namegate/namegate/testkit/fatal"
)

func TestPredecessor(t *testing.T) {
	serving, idle, dialled := netip.MustParseAddr("169.254.20.64"), netip.MustParseAddr("169.254.20.65"), netip.MustParseAddr("192.0.2.53")
	now, listens := time.Unix(1_700_000_000, 0), true
	p := NewPredecessor(func(a netip.Addr) bool { return listens && a == serving }, func() time.Time { return now })
	if p.Present() || p.Serves(serving) || len(p.Addrs()) > 0 {
		t.Error("present before it is looked for")
	}
	p.Find([]netip.Addr{serving, idle}, map[netip.Addr]netip.Addr{serving: dialled})
	if !p.Present() || !p.Serves(serving) || p.Serves(idle) || !maps.Equal(p.Addrs(), map[netip.Addr]netip.Addr{serving: dialled}) {
		t.Errorf("serves at %v", p.Addrs())
	}
	now = now.Add(patience - 1)
	if p.Gone() || p.TimedOut() {
		t.Error("gone or overdue while it serves")
	}
	now = now.Add(1)
	if !p.TimedOut() {
		t.Error("waited for without end")
	}
	listens = false
	if !p.Gone() || !p.Present() {
		t.Error("not gone, or forgotten before its addresses are taken over")
	}
	p.Forget()
	if p.Present() || p.Serves(serving) {
		t.Error("present after Forget")
	}
}

// TestInUse: an address is in use as long as a socket listens there, or one that was accepted is open.
func TestInUse(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", at)
		fatal.If(t, err)
		to := l.Addr().(*net.TCPAddr).AddrPort()
		is := func(when string, want bool) {
			t.Helper()
			if got := InUse(to); got != want {
				t.Errorf("%s: %s in use: %v", when, to, got)
			}
		}
		is("listening", true)
		client, err := net.Dial("tcp", to.String())
		fatal.If(t, err)
		server, err := l.Accept()
		fatal.If(t, err)
		l.Close()
		is("with a connection", true)
		_ = server.(*net.TCPConn).SetLinger(0)
		server.Close()
		client.Close()
		is("without", false)
	}
	if InUse(netip.MustParseAddrPort("198.51.100.1:443")) {
		t.Error("an address that the host does not have is in use")
	}
}
