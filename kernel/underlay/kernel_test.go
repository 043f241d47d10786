package underlay_test

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/kernel/underlay"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/netns"
)

// run runs a program with a line of arguments.
func run(t *testing.T, line string) {
	t.Helper()
	words := strings.Fields(line)
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", line, err, out)
	}
}

// host opens the kernel in a new network namespace with the interface up0 and its addresses
// 192.0.2.1/24 and 2001:db8::1/64.
func host(t *testing.T) *underlay.Kernel {
	t.Helper()
	netns.Own(t)
	for _, line := range []string{
		"ip link set lo up", "ip link add up0 type veth peer name far0", "ip link set up0 up", "ip link set far0 up",
		"ip address add 192.0.2.1/24 dev up0", "ip address add 2001:db8::1/64 dev up0 nodad",
	} {
		run(t, line)
	}
	k, err := underlay.Open()
	fatal.If(t, err)
	t.Cleanup(k.Close)
	return k
}

func peers(t *testing.T, k underlay.Interface) (out []string) {
	t.Helper()
	tunnels, err := k.Tunnels()
	fatal.If(t, err)
	for _, p := range tunnels.Peers {
		out = append(out, fmt.Sprintf("%s %d/%d %s", p.Addr, p.Protocol, p.Port, p.Source))
	}
	for _, u := range tunnels.Unknown {
		out = append(out, fmt.Sprintf("unknown %s %s %d/%d", u.Device, u.Kind, u.Protocol, u.Port))
	}
	return out
}

func TestVXLAN(t *testing.T) {
	t.Parallel()
	k := host(t)
	if got := peers(t, k); len(got) != 0 {
		t.Errorf("a host without tunnels: %q", got)
	}
	for _, line := range []string{
		"ip link add vxlan0 type vxlan id 5 dstport 8472 local 192.0.2.1 remote 192.0.2.9 nolearning",
		"ip link add vxlan6 type vxlan id 6 dstport 4789 local 2001:db8::1 nolearning",
		"ip link add flow0 type vxlan external dstport 4790",
		"bridge fdb add 02:00:00:00:00:01 dev vxlan0 dst 198.51.100.1",
		"bridge fdb append 00:00:00:00:00:00 dev vxlan0 dst 198.51.100.2",
		"bridge fdb add 02:00:00:00:00:03 dev vxlan0 dst 198.51.100.3 port 9999",
		"bridge fdb append 00:00:00:00:00:00 dev vxlan6 dst 2001:db8:1::2",
		// Neither a local entry nor one of a bridge is a peer.
		"ip link add br0 type bridge", "ip link add port0 type veth peer name port1", "ip link set port0 master br0",
		"bridge fdb add 02:00:00:00:00:04 dev port0 master",
	} {
		run(t, line)
	}
	want := []string{
		"192.0.2.9 17/8472 forwarding database of vxlan0", // the kernel lists the remote there too
		"192.0.2.9 17/8472 tunnel vxlan0",
		"198.51.100.1 17/8472 forwarding database of vxlan0",
		"198.51.100.2 17/8472 forwarding database of vxlan0",
		"198.51.100.3 17/9999 forwarding database of vxlan0",
		"2001:db8:1::2 17/4789 forwarding database of vxlan6",
		"unknown flow0 vxlan 17/4790",
	}
	down := want[:len(want)-1] // flow0, which is down
	if got := peers(t, k); !slices.Equal(got, down) {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(down, "\n"))
	}
	run(t, "ip link set flow0 up")
	if got := peers(t, k); !slices.Equal(got, want) {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	run(t, "bridge fdb del 02:00:00:00:00:01 dev vxlan0 dst 198.51.100.1")
	if got := peers(t, k); slices.Contains(got, want[2]) {
		t.Errorf("a deleted entry is still there: %q", got)
	}
}

func TestNextHops(t *testing.T) {
	t.Parallel()
	k := host(t)
	for _, line := range []string{
		"ip route add default via 192.0.2.254",
		"ip route add 198.51.100.0/24 via 192.0.2.253 table 99",
		"ip route add 203.0.113.0/24 nexthop via 192.0.2.252 nexthop via 192.0.2.251",
		"ip -6 route add default via fe80::1 dev up0",
		"ip -6 route add 2001:db8:5::/48 via 2001:db8::fe",
		"ip route add 198.18.0.0/24 via inet6 2001:db8::fd dev up0",
		"ip nexthop add id 7 via 192.0.2.250 dev up0",
		"ip nexthop add id 8 via 192.0.2.249 fdb", // a tunnel's peer
	} {
		run(t, line)
	}
	hops, err := k.NextHops()
	fatal.If(t, err)
	var got []string
	for _, h := range hops {
		got = append(got, h.Addr.String()+" "+h.Device)
	}
	want := []string{
		"192.0.2.250 up0", "192.0.2.251 up0", "192.0.2.252 up0", "192.0.2.253 up0", "192.0.2.254 up0",
		"2001:db8::fd up0", "2001:db8::fe up0", "fe80::1 up0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	run(t, "ip link add vxlan0 type vxlan id 5 dstport 8472 nolearning")
	if got, want := peers(t, k), []string{"192.0.2.249 17/8472 nexthop objects of forwarding databases"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestSessions(t *testing.T) {
	t.Parallel()
	k := host(t)
	sessions := func() underlay.Sessions {
		t.Helper()
		s, err := k.Sessions()
		fatal.If(t, err)
		return s
	}
	run(t, "ip address add 192.0.2.2/32 dev up0")
	other, err := net.Listen("tcp", "192.0.2.2:4000")
	fatal.If(t, err)
	defer other.Close()
	conn, err := net.Dial("tcp", "192.0.2.2:4000")
	fatal.If(t, err)
	defer conn.Close()
	if s := sessions(); s.Listens || len(s.Peers) != 0 {
		t.Errorf("without BGP: %+v", s)
	}
	dialled := netip.MustParseAddrPort("192.0.2.2:4000")
	if ends, err := k.Connections(); err != nil || len(ends) != 2 || !slices.Contains(ends, dialled) { // both ends are on this host
		t.Errorf("connections %v, %v", ends, err)
	}
	local, err := net.Listen("tcp", "127.0.0.1:4000")
	fatal.If(t, err)
	defer local.Close()
	loopback, err := net.Dial("tcp", "127.0.0.1:4000")
	fatal.If(t, err)
	defer loopback.Close()
	if ends, err := k.Connections(); err != nil || len(ends) != 2 {
		t.Errorf("connections beside loopback %v, %v", ends, err)
	}
	l, err := net.Listen("tcp", "192.0.2.2:179")
	fatal.If(t, err)
	defer l.Close()
	if s := sessions(); !s.Listens || len(s.Peers) != 0 {
		t.Errorf("without a session: %+v", s)
	}
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}}
	bgp, err := d.Dial("tcp", "192.0.2.2:179")
	fatal.If(t, err)
	defer bgp.Close()
	_, err = l.Accept()
	fatal.If(t, err)
	// Both ends are on this host.
	if s := sessions(); !slices.Equal(s.Peers, []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")}) {
		t.Errorf("with a session: %+v", s)
	}
}

// TestADialIsNoSession: a process cannot make a session by dialling.
func TestADialIsNoSession(t *testing.T) {
	t.Parallel()
	k := host(t)
	run(t, "ip route add default via 192.0.2.254")
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	fatal.If(t, err)
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: 179, Addr: [4]byte{198, 51, 100, 9}}); err != unix.EINPROGRESS {
		t.Fatal(err)
	}
	s, err := k.Sessions()
	fatal.If(t, err)
	if len(s.Peers) != 0 {
		t.Errorf("%+v", s)
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	k := host(t)
	run(t, "ip link add vxlan0 type vxlan id 5 dstport 8472 nolearning")
	run(t, "ip link set vxlan0 up")
	tokens, err := k.Watch(t.Context(), func(err error) { t.Error(err) })
	fatal.If(t, err)
	token := func(what string) {
		t.Helper()
		select {
		case <-tokens:
		case <-time.After(time.Minute):
			t.Fatalf("no token of %s", what)
		}
	}
	for _, line := range []string{
		"bridge fdb append 00:00:00:00:00:00 dev vxlan0 dst 198.51.100.2", "ip route add default via 192.0.2.254",
		"ip -6 route add default via fe80::1 dev up0", "ip link add vxlan1 type vxlan id 6 dstport 4789",
	} {
		for quiet := false; !quiet; {
			select {
			case <-tokens: // of an earlier change
			case <-time.After(200 * time.Millisecond):
				quiet = true
			}
		}
		run(t, line)
		token(line)
	}
}
