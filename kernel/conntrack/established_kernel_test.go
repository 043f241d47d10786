package conntrack_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// timeout sets a timeout of connection tracking in the namespace of the test.
func timeout(t testing.TB, name string, seconds int) {
	t.Helper()
	fatal.If(t, os.WriteFile("/proc/sys/net/netfilter/nf_conntrack_"+name, fmt.Append(nil, seconds), 0))
}

// established is a connection as Established hands it over.
type established struct {
	conntrack.Flow
	idle time.Duration
}

// list lists the established connections with bits in their mark.
func list(t testing.TB, i conntrack.Interface, mark, mask uint32) (out []established) {
	t.Helper()
	fatal.If(t, i.Established(mark, mask, func(f *conntrack.Flow, idle time.Duration) { out = append(out, established{*f, idle}) }))
	return out
}

// idle returns for how long the connection from src is idle, and whether it is established.
func idle(t testing.TB, i conntrack.Interface, src netip.AddrPort) (time.Duration, bool) {
	t.Helper()
	for _, e := range list(t, i, 0, 0) {
		if e.Src == src {
			return e.idle, true
		}
	}
	return 0, false
}

// echo sends a datagram from an address to another, which the test answers, until the kernel
// takes the connection as a stream.
func echo(t *testing.T, k *conntrack.Kernel, from, to string) (src, dst netip.AddrPort) {
	t.Helper()
	l, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(to)})
	fatal.If(t, err)
	t.Cleanup(func() { l.Close() })
	c, err := net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(from)}, l.LocalAddr().(*net.UDPAddr))
	fatal.If(t, err)
	t.Cleanup(func() { c.Close() })
	src, dst = netip.MustParseAddrPort(c.LocalAddr().String()), netip.MustParseAddrPort(c.RemoteAddr().String())
	buf := make([]byte, 1)
	fatal.Await(t, "an answered connection of UDP is established", func() bool {
		_, err := c.Write(buf)
		fatal.If(t, err)
		_, peer, err := l.ReadFromUDP(buf)
		fatal.If(t, err)
		if _, is := idle(t, k, src); is {
			return true
		}
		_, err = l.WriteToUDP(buf, peer)
		fatal.If(t, err)
		time.Sleep(50 * time.Millisecond)
		return false
	})
	return src, dst
}

// TestKernelEstablished: a connection that was not answered, or that has ended, is not
// established.
func TestKernelEstablished(t *testing.T) {
	t.Parallel()
	k := kernel(t)
	run(t, "iptables", "-A", "INPUT", "-p", "tcp", "--dport", "9", "-j", "DROP")
	run(t, "ip6tables", "-A", "INPUT", "-p", "tcp", "--dport", "9", "-j", "DROP")
	var want []string
	for _, test := range []struct{ pod, to string }{{"10.1.0.5", "192.0.2.1"}, {"2001:db8:1::5", "2001:db8::1"}} {
		src, dst := dial(t, "tcp", test.pod, test.to)
		want = append(want, fmt.Sprint(unix.IPPROTO_TCP, src, dst, dst))
		src, dst = echo(t, k, test.pod, test.to)
		want = append(want, fmt.Sprint(unix.IPPROTO_UDP, src, dst, dst))
		dial(t, "udp", test.pod, test.to) // a datagram without an answer
		ping(t, test.pod, test.to)
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(test.pod)}, Timeout: 500 * time.Millisecond}
		if _, err := d.Dial("tcp", net.JoinHostPort(test.to, "9")); err == nil {
			t.Fatal("connected to nobody")
		}
		closed(t, test.pod, test.to)
		if n := len(flows(t, k, test.pod)); n != 6 {
			t.Errorf("%d connections of %s are tracked", n, test.pod)
		}
	}
	slices.Sort(want)
	of := func(mark, mask uint32) (got []string) {
		for _, e := range list(t, k, mark, mask) {
			got = append(got, fmt.Sprint(e.Protocol, e.Src, e.Dst, e.Peer))
		}
		slices.Sort(got)
		return got
	}
	for _, mask := range []uint32{0, others, ours | others} {
		diff.Error(t, want, of(others, mask), "with the mark", mask)
	}
	if got := of(ours, ours); len(got) != 0 {
		t.Errorf("with another mark: %q", got)
	}
	for _, f := range flows(t, k, "10.1.0.5") {
		fatal.If(t, k.SetMark(f, ours, ours))
	}
	if got := of(ours, ours); len(got) != 2 {
		t.Errorf("with the mark since: %q", got)
	}
}

// closed opens a connection of TCP and closes it.
func closed(t *testing.T, from, to string) {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.ParseIP(to)})
	fatal.If(t, err)
	defer l.Close()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.Dial("tcp", l.Addr().String())
	fatal.If(t, err)
	c.Close()
}

// TestKernelEstablishedBehindNAT: a connection names what was dialled and what is reached.
func TestKernelEstablishedBehindNAT(t *testing.T) {
	t.Parallel()
	k := kernel(t)
	run(t, "iptables", "-t", "nat", "-A", "OUTPUT", "-d", "198.18.0.1", "-p", "tcp", "--dport", "80", "-j", "DNAT", "--to", "192.0.2.1:8080")
	run(t, "ip", "route", "add", "198.18.0.1/32", "dev", "lo", "src", "10.1.0.5")
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.ParseIP("192.0.2.1"), Port: 8080})
	fatal.If(t, err)
	defer l.Close()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("10.1.0.5")}}
	c, err := d.Dial("tcp", "198.18.0.1:80")
	fatal.If(t, err)
	defer c.Close()
	got := list(t, k, 0, 0)
	if len(got) != 1 || got[0].Dst != netip.MustParseAddrPort("198.18.0.1:80") || got[0].Peer != netip.MustParseAddrPort("192.0.2.1:8080") {
		t.Errorf("established %+v, want 198.18.0.1:80 dialled and 192.0.2.1:8080 behind it", got)
	}
}

// TestKernelIdle: the time since the last packet is told by the timeouts of the namespace.
func TestKernelIdle(t *testing.T) {
	k := kernel(t)
	timeout(t, "tcp_timeout_established", 1000)
	timeout(t, "tcp_timeout_unacknowledged", 300)
	timeout(t, "udp_timeout_stream", 500)
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.ParseIP("192.0.2.1")})
	fatal.If(t, err)
	defer listener.Close()
	open := func(from string) (client *net.TCPConn, src netip.AddrPort) {
		c, err := net.DialTCP("tcp", &net.TCPAddr{IP: net.ParseIP(from)}, listener.Addr().(*net.TCPAddr))
		fatal.If(t, err)
		t.Cleanup(func() { c.Close() })
		return c, netip.MustParseAddrPort(c.LocalAddr().String())
	}
	before := time.Now()
	_, quiet := open("10.1.0.5")
	stream, _ := echo(t, k, "10.1.0.5", "192.0.2.1")
	busy, active := open("10.1.0.6")
	time.Sleep(max(0, 3*time.Second-time.Since(before)))
	again := time.Now()
	if _, err := busy.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	check := func(what string, src netip.AddrPort, least time.Duration, since time.Time) {
		t.Helper()
		got, is := idle(t, k, src)
		if most := time.Since(since); !is || got < least || got > most+2*time.Second {
			t.Errorf("%s is idle for %v (established: %v), want %v to %v", what, got, is, least, most)
		}
	}
	check("the quiet connection", quiet, 2*time.Second, before)
	check("the active connection", active, 0, again)
	check("the stream of UDP", stream, 0, before)

	run(t, "iptables", "-A", "INPUT", "-s", "192.0.2.1", "-d", "10.1.0.6", "-j", "DROP")
	again = time.Now()
	if _, err := busy.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	check("the connection without an acknowledgement", active, 0, again)

	timeout(t, "tcp_timeout_established", 100)
	if got, is := idle(t, k, quiet); !is || got != 0 {
		t.Errorf("the connection of an earlier timeout is idle for %v (established: %v)", got, is)
	}
}
