package conntrack_test

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/netns"
)

func run(t testing.TB, words ...string) {
	t.Helper()
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", words, err, out)
	}
}

// ours and others are the bit that tests change and bits that must stay.
const ours, others = 0x40, 0x2001

// kernel opens the real thing in a network namespace of the test's own thread,
// with several addresses on its loopback and tracking on: a rule marks every new
// connection with bits that are not ours.
func kernel(t testing.TB) *conntrack.Kernel {
	t.Helper()
	netns.Own(t)
	run(t, "ip", "link", "set", "lo", "up")
	for _, a := range []string{"10.1.0.5/32", "10.1.0.6/32", "192.0.2.1/32"} {
		run(t, "ip", "addr", "add", a, "dev", "lo")
	}
	for _, a := range []string{"2001:db8:1::5/128", "2001:db8:1::6/128", "2001:db8::1/128"} {
		run(t, "ip", "addr", "add", a, "dev", "lo", "nodad")
	}
	awaitLocal(t, "2001:db8:1::5", "2001:db8:1::6", "2001:db8::1")
	for _, program := range []string{"iptables", "ip6tables"} {
		run(t, program, "-t", "mangle", "-A", "OUTPUT", "-m", "conntrack", "--ctstate", "NEW", "-j", "CONNMARK", "--set-xmark", "0x2001/0xffffffff")
	}
	k, err := conntrack.Open()
	fatal.If(t, err)
	t.Cleanup(k.Close)
	return k
}

// awaitLocal waits until IPv6 addresses have their local routes: the kernel adds these
// later than the addresses, in a worker.
func awaitLocal(t testing.TB, addrs ...string) {
	t.Helper()
	for _, a := range addrs {
		fatal.Await(t, a+" is local", func() bool {
			out, err := exec.Command("ip", "-6", "route", "get", a).CombinedOutput()
			return err == nil && strings.HasPrefix(string(out), "local ")
		})
	}
}

// dial opens a connection from an address to a listener on another and leaves it
// open until the test's end.
func dial(t testing.TB, network, from, to string) (src, dst netip.AddrPort) {
	t.Helper()
	local, remote := netip.MustParseAddr(from), netip.MustParseAddr(to)
	var server interface{ Close() error }
	var address, client net.Addr
	if network == "tcp" {
		l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(remote, 0)))
		fatal.If(t, err)
		server, address, client = l, l.Addr(), net.TCPAddrFromAddrPort(netip.AddrPortFrom(local, 0))
	} else {
		l, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(remote, 0)))
		fatal.If(t, err)
		server, address, client = l, l.LocalAddr(), net.UDPAddrFromAddrPort(netip.AddrPortFrom(local, 0))
	}
	t.Cleanup(func() { server.Close() })
	d := net.Dialer{LocalAddr: client}
	c, err := d.Dial(network, address.String())
	fatal.If(t, err)
	t.Cleanup(func() { c.Close() })
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	return netip.MustParseAddrPort(c.LocalAddr().String()), netip.MustParseAddrPort(c.RemoteAddr().String())
}

// ping sends one echo request; the kernel itself answers.
func ping(t testing.TB, from, to string) {
	t.Helper()
	network, echo := "ip4:icmp", byte(8)
	if netip.MustParseAddr(to).Is6() {
		network, echo = "ip6:ipv6-icmp", 128
	}
	d := net.Dialer{LocalAddr: &net.IPAddr{IP: net.ParseIP(from)}}
	c, err := d.Dial(network, to)
	fatal.If(t, err)
	defer c.Close()
	msg := []byte{echo, 0, 0, 0, 0x12, 0x34, 0, 1}
	if echo == 8 {
		sum := ^(uint16(echo)<<8 + 0x1234 + 1)
		msg[2], msg[3] = byte(sum>>8), byte(sum)
	}
	if _, err := c.Write(msg); err != nil {
		t.Fatal(err)
	}
}

func flows(t testing.TB, i conntrack.Interface, addr string) []conntrack.Flow {
	t.Helper()
	all, err := i.Flows(conntrack.Query{Sources: []netip.Addr{netip.MustParseAddr(addr)}})
	fatal.If(t, err)
	slices.SortFunc(all, func(a, b conntrack.Flow) int { return int(a.Protocol) - int(b.Protocol) })
	return all
}

// texts renders the predictable fields of flows.
func texts(all ...conntrack.Flow) []string {
	var out []string
	for _, f := range all {
		out = append(out, fmt.Sprintf("%d %s %s %s %#x zone %d", f.Protocol, f.Src, f.Dst, f.Peer, f.Mark, f.Zone))
	}
	return out
}

func TestKernelListsTheFlowsOfOneSource(t *testing.T) {
	t.Parallel()
	k := kernel(t)
	for _, test := range []struct {
		pod, other, to string
		icmp           uint8
	}{
		{"10.1.0.5", "10.1.0.6", "192.0.2.1", 1},
		{"2001:db8:1::5", "2001:db8:1::6", "2001:db8::1", 58},
	} {
		if got := flows(t, k, test.pod); len(got) != 0 {
			t.Errorf("%s has %v before it dials", test.pod, got)
		}
		var want []conntrack.Flow
		for _, n := range []struct {
			name  string
			proto uint8
		}{{"tcp", unix.IPPROTO_TCP}, {"udp", unix.IPPROTO_UDP}} {
			src, dst := dial(t, n.name, test.pod, test.to)
			dial(t, n.name, test.other, test.to)
			want = append(want, conntrack.Flow{Protocol: n.proto, Src: src, Dst: dst, Peer: dst, Mark: others})
		}
		ping(t, test.pod, test.to)
		// A flow to the pod is none of the pod's.
		dial(t, "tcp", test.other, test.pod)
		got := flows(t, k, test.pod)
		var icmp []conntrack.Flow
		got = slices.DeleteFunc(got, func(f conntrack.Flow) bool {
			if f.Protocol == test.icmp {
				icmp = append(icmp, f)
			}
			return f.Protocol == test.icmp
		})
		diff.Error(t, texts(want...), texts(got...), "flows of", test.pod)
		if len(icmp) != 1 || icmp[0].Dst.Addr() != netip.MustParseAddr(test.to) || icmp[0].Dst.Port() != 0 {
			t.Errorf("ICMP flows of %s: %v", test.pod, icmp)
		}
	}
}

func TestKernelMarksOnlyItsBits(t *testing.T) {
	t.Parallel()
	k := kernel(t)
	for _, pair := range [][2]string{{"10.1.0.5", "192.0.2.1"}, {"2001:db8:1::5", "2001:db8::1"}} {
		dial(t, "tcp", pair[0], pair[1])
		dial(t, "udp", pair[0], pair[1])
		ping(t, pair[0], pair[1])
		set := func(value, mask, want uint32) {
			t.Helper()
			all := flows(t, k, pair[0])
			if len(all) != 3 {
				t.Fatalf("%d flows of three", len(all))
			}
			for _, f := range all {
				fatal.If(t, k.SetMark(f, value, mask))
			}
			for _, f := range flows(t, k, pair[0]) {
				if f.Mark != want {
					t.Errorf("protocol %d from %s: mark %#x after %#x/%#x, want %#x", f.Protocol, f.Src, f.Mark, value, mask, want)
				}
			}
		}
		set(ours, ours, others|ours)
		set(0, ours, others)
		set(ours, ours, others|ours)
		set(0xffffffff, ours, others|ours)
		set(0, 0, others|ours)
		set(0, 1, others&^1|ours)
	}
}

func TestKernelForgetsAFlow(t *testing.T) {
	t.Parallel()
	k := kernel(t)
	for _, pair := range [][2]string{{"10.1.0.5", "192.0.2.1"}, {"2001:db8:1::5", "2001:db8::1"}} {
		dial(t, "tcp", pair[0], pair[1])
		stays, _ := dial(t, "udp", pair[0], pair[1])
		f := flows(t, k, pair[0])[0]
		for range 2 {
			if err := k.Delete(f); err != nil {
				t.Errorf("delete: %v", err)
			}
			if err := k.SetMark(f, ours, ours); err != nil {
				t.Errorf("marking a flow that is gone: %v", err)
			}
		}
		left := flows(t, k, pair[0])
		if len(left) != 1 || left[0].Src != stays || left[0].Mark != others {
			t.Errorf("left of %s: %v", pair[0], left)
		}
	}
}
