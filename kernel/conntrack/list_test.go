package conntrack_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/testkit/conntracktest"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestKernelAndFakeAgree asks both for connections of random sources, of which some are admitted.
func TestKernelAndFakeAgree(t *testing.T) {
	t.Parallel()
	k, f := kernel(t), conntracktest.NewFake()
	timeout(t, "udp_timeout", 3600)                                                                  // none ends meanwhile
	sources := []netip.Addr{netip.MustParseAddr("10.7.0.99"), netip.MustParseAddr("2001:db8:7::99")} // without connections
	for pod := range 6 {
		for to, format := range map[string]string{"192.0.2.1": "10.7.0.%d", "2001:db8::1": "2001:db8:7::%x"} {
			a := netip.MustParseAddr(fmt.Sprintf(format, 16+pod))
			sources = append(sources, a)
			if run(t, "ip", "addr", "add", netip.PrefixFrom(a, a.BitLen()).String(), "dev", "lo"); a.Is6() {
				awaitLocal(t, a.String())
			}
			for range 3 {
				dial(t, "udp", a.String(), to)
			}
			for _, flow := range flows(t, k, a.String()) {
				if pod%3 == 0 {
					fatal.If(t, k.SetMark(flow, ours, ours))
					flow.Mark |= ours
				}
				f.Track(flow)
			}
		}
	}
	if n := len(flows(t, f, "10.7.0.16")); n != 3 {
		t.Fatalf("%d connections of three", n)
	}
	r := rand.New(rand.NewPCG(1, 2))
	masks := []uint32{0, ours, ours, others, ours | others, 1 << 31}
	for range 100 {
		q := conntrack.Query{Mark: r.Uint32N(2) * 0xffffffff, Mask: masks[r.IntN(len(masks))]}
		for range r.IntN(6) {
			q.Sources = append(q.Sources, sources[r.IntN(len(sources))])
		}
		var got [2][]string
		for i, seam := range []conntrack.Interface{k, f} {
			all, err := seam.Flows(q)
			fatal.If(t, err)
			got[i] = texts(all...)
			slices.Sort(got[i])
		}
		diff.Fatal(t, got[1], got[0], q)
	}
}

// TestKernelLooksUp finds one connection by the addresses of its first packet, and
// returns its actual destination.
func TestKernelLooksUp(t *testing.T) {
	t.Parallel()
	k := kernel(t)
	run(t, "iptables", "-t", "nat", "-A", "OUTPUT", "-d", "198.18.0.1", "-p", "udp", "--dport", "53", "-j", "DNAT", "--to", "192.0.2.1:5353")
	run(t, "ip", "route", "add", "198.18.0.1/32", "dev", "lo", "src", "10.1.0.5")
	for _, test := range []struct {
		network, from, to string
		proto             uint8
	}{
		{"tcp", "10.1.0.5", "192.0.2.1", unix.IPPROTO_TCP},
		{"udp", "10.1.0.5", "192.0.2.1", unix.IPPROTO_UDP},
		{"tcp", "2001:db8:1::5", "2001:db8::1", unix.IPPROTO_TCP},
		{"udp", "2001:db8:1::5", "2001:db8::1", unix.IPPROTO_UDP},
	} {
		src, dst := dial(t, test.network, test.from, test.to)
		f, found, err := k.Lookup(test.proto, src, dst)
		if err != nil || !found {
			t.Fatalf("%s %s to %s: found %v, %v", test.network, src, dst, found, err)
		}
		diff.Error(t, texts(conntrack.Flow{Protocol: test.proto, Src: src, Dst: dst, Peer: dst, Mark: others}), texts(f))
		if err := k.SetMark(f, ours, ours); err != nil {
			t.Error(err)
		}
		if f, _, _ = k.Lookup(test.proto, src, dst); f.Mark != ours|others {
			t.Errorf("what was looked up is not what was marked: %#x", f.Mark)
		}
		for what, other := range map[string][2]netip.AddrPort{
			"the other direction": {dst, src}, "another port": {src, netip.AddrPortFrom(dst.Addr(), dst.Port()^1)},
			"another source": {netip.AddrPortFrom(dst.Addr(), src.Port()), dst}, "both families": {netip.MustParseAddrPort("10.1.0.5:1"), netip.MustParseAddrPort("[2001:db8::1]:1")},
		} {
			if f, found, err := k.Lookup(test.proto, other[0], other[1]); found || err != nil {
				t.Errorf("%s: %+v, %v", what, f, err)
			}
		}
		if _, found, err := k.Lookup(test.proto^unix.IPPROTO_TCP^unix.IPPROTO_UDP, src, dst); found || err != nil {
			t.Errorf("another protocol: %v, %v", found, err)
		}
	}
	c, err := net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP("10.1.0.5")}, &net.UDPAddr{IP: net.ParseIP("198.18.0.1"), Port: 53})
	fatal.If(t, err)
	defer c.Close()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	f, found, err := k.Lookup(unix.IPPROTO_UDP, netip.MustParseAddrPort(c.LocalAddr().String()), netip.MustParseAddrPort("198.18.0.1:53"))
	if err != nil || !found || f.Peer != netip.MustParseAddrPort("192.0.2.1:5353") {
		t.Errorf("behind a translation: %+v, %v, %v", f, found, err)
	}
	ping(t, "10.1.0.5", "192.0.2.1")
	if _, found, err := k.Lookup(unix.IPPROTO_ICMP, netip.MustParseAddrPort("10.1.0.5:0"), netip.MustParseAddrPort("192.0.2.1:0")); found || err != nil {
		t.Errorf("a protocol without ports: %v, %v", found, err)
	}
}

// TestKernelListsByPeers: connections to few peers and to many, and none of other
// sources or of another mark.
func TestKernelListsByPeers(t *testing.T) {
	t.Parallel()
	k := kernel(t)
	var all []netip.Addr
	for i := range 7 {
		a := netip.AddrFrom4([4]byte{203, 0, 113, byte(1 + i)})
		all = append(all, a)
		run(t, "ip", "addr", "add", a.String()+"/32", "dev", "lo")
	}
	six := []netip.Addr{netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8:1::6")}
	run(t, "iptables", "-t", "nat", "-A", "OUTPUT", "-d", "198.18.0.1", "-p", "tcp", "-j", "DNAT", "--to", "203.0.113.1")
	run(t, "ip", "route", "add", "198.18.0.1/32", "dev", "lo", "src", "10.1.0.5")
	l, err := net.Listen("tcp", "203.0.113.1:8080")
	fatal.If(t, err)
	defer l.Close()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("10.1.0.5")}}
	c, err := d.Dial("tcp", "198.18.0.1:8080")
	fatal.If(t, err)
	defer c.Close()
	for _, a := range all {
		dial(t, "udp", "10.1.0.5", a.String())
		dial(t, "udp", "10.1.0.6", a.String())
	}
	for _, a := range six {
		dial(t, "udp", "2001:db8:1::5", a.String())
	}
	pods := []netip.Addr{netip.MustParseAddr("10.1.0.5"), netip.MustParseAddr("2001:db8:1::5")}
	for _, test := range []struct {
		peers []netip.Addr
		want  int
	}{
		{all[:1], 2}, {all[1:2], 1}, {all[:3], 4}, {all, 8}, {six[:1], 1}, {six, 2}, {append(all[:2:2], six[0]), 4},
		{[]netip.Addr{netip.MustParseAddr("198.18.0.1")}, 0}, {nil, 10},
	} {
		got, err := k.Flows(conntrack.Query{Sources: pods, Peers: test.peers, Mark: others, Mask: others})
		if err != nil || len(got) != test.want {
			t.Errorf("to %v: %d connections, want %d, %v: %v", test.peers, len(got), test.want, err, texts(got...))
		}
		if got, err := k.Flows(conntrack.Query{Sources: pods, Peers: test.peers, Mark: ours, Mask: ours}); err != nil || len(got) != 0 {
			t.Errorf("of another mark to %v: %v, %v", test.peers, texts(got...), err)
		}
	}
}
