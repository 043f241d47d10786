package layout_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// solicitation is a packet of IPv6 that looks like discovery (RFC 4861 §4.3) from a
// made-up source, but for its hop limit.
func solicitation(source, to netip.Addr) []byte {
	b := make([]byte, 40+24)
	b[0], b[6], b[7] = 6<<4, unix.IPPROTO_ICMPV6, 64
	binary.BigEndian.PutUint16(b[4:], 24)
	copy(b[8:], source.AsSlice())
	copy(b[24:], to.AsSlice())
	b[40] = 135
	// The pseudo-header of RFC 8200 §8.1, and the message.
	binary.BigEndian.PutUint16(b[42:], checksum(24+unix.IPPROTO_ICMPV6, b[8:]))
	return b
}

// TestForgedSourcesDoNotSuppressLogs: packets that the home check passes, because they
// are not forwarded, are denied and take no part of the pods' share of the log.
func TestForgedSourcesDoNotSuppressLogs(t *testing.T) {
	t.Parallel()
	w := listen(t, lab.Routed)
	state := w.state
	state.Audited = nil
	for _, p := range []*lab.Pod{w.Pod("a"), w.Pod("b")} {
		state.Ifaces = append(state.Ifaces, p.Iface)
		state.Homes = append(state.Homes, layout.Home{Iface: p.Iface, Addr: p.Addr4}, layout.Home{Iface: p.Iface, Addr: p.Addr6})
	}
	node := netip.MustParseAddr("fd00:77::1")
	w.apply(state)
	const flood = 3000
	fatal.If(t, w.Pod("b").Do(func() error {
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for i := range flood {
			source := netip.MustParseAddr(fmt.Sprintf("fe80::1:%x", i+1))
			if err := unix.Sendto(fd, solicitation(source, node), 0, &unix.SockaddrInet6{Addr: node.As16()}); err != nil {
				return err
			}
		}
		return nil
	}))
	fatal.Await(t, "each packet is denied", func() bool { return w.denied() >= flood })
	if text, err := w.Node.Run("nft", "list set inet namegate told6"); err != nil || strings.Contains(text, "fe80::1:") {
		t.Errorf("sources that nobody has are remembered: %d of them, %v", strings.Count(text, "fe80::1:"), err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	diff.Equal(t, 0, len(w.heard), "packets from sources that nobody has were logged")
}

// TestAuditedScanDoesNotSuppressLogs: a pod that tries many ports is remembered by its logged
// packets alone, which leaves room for the others. Beyond its share only lines are lost.
func TestAuditedScanDoesNotSuppressLogs(t *testing.T) {
	t.Parallel()
	w := listen(t, lab.Routed)
	began := time.Now()
	w.floods("c", 5000)
	// At once: after ten seconds none is left. A flood that takes longer than that has 20 a second left.
	text, err := w.Node.Run("nft", "list set inet namegate watched4")
	most := 100 + int(20*time.Since(began).Seconds()) + 1
	if n := strings.Count(text, "198.51.100.7"); err != nil || n < 100 || n > most {
		t.Errorf("%d connections of a pod are remembered, want 100 to %d: %v", n, most, err)
	}
	for range 100 {
		w.expect("c", "udp", "198.51.100.1:80", lab.Answered)
	}
	w.expect("d", "tcp", "198.51.100.1:80", lab.Answered)
	w.same("logged of d", w.logged("d", 1), "namegate audited tcp 198.51.100.1:80")
	// A packet that was not logged for lack of a share is logged later.
	w.loggedSoFar("c")
	w.logged("c", 0)
	again, err := w.Pod("c").ListenPacket("udp4", "0.0.0.0:0") // one that is connected reports that nothing listens
	fatal.If(t, err)
	defer again.Close()
	fatal.Await(t, "the growth of the share, by twenty a second", func() bool {
		_, err := again.WriteTo([]byte("x"), net4(netip.MustParseAddrPort("198.51.100.7:5999")))
		fatal.If(t, err)
		return len(w.log("c")) > 0
	})
	w.same("logged of c", w.logged("c", 1), "namegate audited udp 198.51.100.7:5999")
}

// asks sends a datagram from a pod, which need not arrive.
func (w *listener) asks(pod, to string) {
	w.t.Helper()
	c, err := w.Pod(pod).Dial("udp", to, time.Minute)
	fatal.If(w.t, err)
	defer c.Close()
	if _, err := c.Write([]byte("query")); err != nil {
		w.t.Fatal(err)
	}
}

// TestPodsThatBypassInterception: an intercepted pod that sends to an address behind a
// resolver is reported, by the packet as it left the pod; redirection by interception,
// its absence or another program is not.
func TestPodsThatBypassInterception(t *testing.T) {
	t.Parallel()
	onEachListener(t, func(t *testing.T, w *listener) {
		a, b, c := w.Pod("a"), w.Pod("b"), w.Pod("c")
		endpoint := netip.MustParseAddr("169.254.20.53")
		state := layout.State{
			Intercepted: []netip.Addr{a.Addr4, a.Addr6, b.Addr4, b.Addr6}, Known: []netip.Addr{a.Addr4, b.Addr4, c.Addr4},
			Resolvers: map[netip.Addr]netip.Addr{netip.MustParseAddr("203.0.113.53"): netip.MustParseAddr("169.254.20.64")},
			Endpoint:  []netip.Addr{endpoint},
			Answering: []netip.AddrPort{netip.MustParseAddrPort("198.51.100.53:5353"), netip.MustParseAddrPort("[2001:db8::53]:53"), netip.MustParseAddrPort("192.0.2.9:80")},
			Backends:  []netip.AddrPort{netip.MustParseAddrPort("198.51.100.53:5353")},
		}
		bypassing := func() (out []netip.Addr) {
			t.Helper()
			w.do(func(context.Context) (err error) { out, err = w.tables.Bypassing(context.Background()); return err })
			return out
		}
		w.apply(state)
		for _, alive := range []bool{false, true} {
			w.asks("a", "203.0.113.53:53")    // the resolver's own address
			w.asks("a", "169.254.20.53:53")   // redirected to a backend while no agent is alive
			w.asks("a", "203.0.113.10:443")   // redirected by another program to an answering address
			w.asks("a", "198.51.100.53:53")   // another port
			w.asks("c", "198.51.100.53:5353") // not intercepted
			w.asks("c", "[2001:db8::53]:53")
			if got := bypassing(); len(got) != 0 {
				t.Errorf("alive %v: %v are said to bypass", alive, got)
			}
			w.do(w.tables.Heartbeat)
		}
		w.asks("a", "198.51.100.53:5353")
		w.asks("b", "[2001:db8::53]:53")
		overTCP, err := a.Dial("tcp", "[2001:db8::53]:53", lab.Limit)
		fatal.If(t, err)
		overTCP.Close()
		want := []netip.Addr{a.Addr4, a.Addr6, b.Addr6}
		slices.SortFunc(want, netip.Addr.Compare)
		diff.Error(t, want, bypassing(), "bypassing")
		w.do(func(ctx context.Context) error { verified(t, w.tables, state); return w.tables.Rewrite(ctx, state) })
		if got := bypassing(); len(got) != 3 {
			t.Errorf("after a repair %v are left", got)
		}
	})
}

func net4(to netip.AddrPort) *net.UDPAddr { return net.UDPAddrFromAddrPort(to) }

func ip4(a string) *net.IPAddr { return &net.IPAddr{IP: net.ParseIP(a)} }

// segment is a TCP segment with nothing but the flags that end a connection
// (RFC 9293 §3.1), from port 40000.
func segment(from netip.Addr, to netip.AddrPort) []byte {
	b := make([]byte, 20)
	binary.BigEndian.PutUint16(b, 40000)
	binary.BigEndian.PutUint16(b[2:], to.Port())
	b[12], b[13] = 5<<4, 0x11 // FIN and ACK
	src, dst := from.As4(), to.Addr().As4()
	pseudo := append(append(append([]byte{}, src[:]...), dst[:]...), 0, 6, 0, 20)
	binary.BigEndian.PutUint16(b[16:], checksum(0, append(pseudo, b...)))
	return b
}

// checksum is the Internet checksum (RFC 1071) of a sum and of bytes, an even number of them.
func checksum(sum uint32, b []byte) uint16 {
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
