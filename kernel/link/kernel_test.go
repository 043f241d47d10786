package link_test

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/netns"
)

func run(t testing.TB, words ...string) string {
	t.Helper()
	out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", words, err, out)
	}
	return string(out)
}

// ip runs the program ip with a line of arguments.
func ip(t testing.TB, line string) string {
	t.Helper()
	return run(t, append([]string{"ip"}, strings.Fields(line)...)...)
}

// kernel opens the real thing in a network namespace of the test's own thread.
func kernel(t testing.TB) *link.Kernel {
	t.Helper()
	netns.Own(t)
	ip(t, "link set lo up")
	k, err := link.Open()
	fatal.If(t, err)
	t.Cleanup(k.Close)
	return k
}

// peer is another network namespace, held by a process that does nothing.
type peer struct {
	t   testing.TB
	pid string
}

func newPeer(t testing.TB) peer {
	t.Helper()
	cmd := exec.Command("unshare", "-n", "sh", "-c", "echo ready; exec sleep 600")
	out, err := cmd.StdoutPipe()
	fatal.If(t, err)
	fatal.If(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if _, err := out.Read(make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	return peer{t, strconv.Itoa(cmd.Process.Pid)}
}

func (p peer) ip(line string) {
	p.t.Helper()
	run(p.t, append([]string{"nsenter", "-t", p.pid, "-n", "ip"}, strings.Fields(line)...)...)
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func addrs(s ...string) []netip.Addr {
	var out []netip.Addr
	for _, a := range s {
		out = append(out, addr(a))
	}
	return out
}

// homes asks for the homes of one address.
func homes(t testing.TB, links link.Interface, a string) ([]link.Found, bool) {
	t.Helper()
	found, _, err := links.Homes(addrs(a))
	if err != nil {
		t.Fatalf("home of %s: %v", a, err)
	}
	f, known := found[addr(a)]
	return f, known
}

func TestHomeOfRoutedAddresses(t *testing.T) {
	t.Parallel()
	k := kernel(t)
	ip(t, "link add veth5 type veth peer name peer5")
	ip(t, "link set veth5 up")
	ip(t, "link set peer5 up")
	ip(t, "route add 10.1.0.5/32 dev veth5")
	ip(t, "-6 route add 2001:db8:1::5/128 dev veth5")
	ip(t, "addr add 198.51.100.1/24 dev veth5")
	ip(t, "route add 10.2.0.0/24 via 198.51.100.2")
	ip(t, "route add blackhole 10.3.0.0/24")
	for _, a := range []string{"10.1.0.5", "2001:db8:1::5"} {
		if h, known := homes(t, k, a); !known || !slices.Equal(h, []link.Found{{Home: link.Home{Iface: "veth5"}, Evidence: link.Seen}}) {
			t.Errorf("home of %s: %+v, %v", a, h, known)
		}
	}
	for what, a := range map[string]string{
		"no route": "10.9.0.1", "another node's": "10.2.0.7", "nobody's": "10.3.0.1", "the node's own": "198.51.100.1", "no route over IPv6": "2001:db8:9::1",
	} {
		if h, known := homes(t, k, a); known {
			t.Errorf("%s: home of %s is %+v", what, a, h)
		}
	}
	for a, want := range map[string]string{"10.1.0.5": "veth5", "2001:db8:1::5": "veth5", "10.2.0.7": "veth5", "198.51.100.1": "lo", "10.3.0.1": "", "10.9.0.1": ""} {
		if name, err := k.Route(addr(a)); name != want || (err == nil) != (want != "") {
			t.Errorf("route to %s: %q, %v", a, name, err)
		}
	}
	ip(t, "link del veth5")
	if h, known := homes(t, k, "10.1.0.5"); known {
		t.Errorf("after its interface is gone: %+v", h)
	}
}

// bridged makes the bridge br0 with the addresses 10.1.0.1 and 2001:db8:1::1.
func bridged(t *testing.T) {
	t.Helper()
	// A fixed hardware address: a bridge forgets its neighbours when it takes a new one.
	ip(t, "link add br0 address 02:00:00:00:00:01 type bridge")
	ip(t, "link set br0 up")
	ip(t, "addr add 10.1.0.1/24 dev br0")
	ip(t, "addr add 2001:db8:1::1/64 dev br0 nodad")
}

// join makes a namespace without addresses behind a port of br0.
func join(t *testing.T, port string) peer {
	t.Helper()
	p := newPeer(t)
	ip(t, "link add "+port+" type veth peer name eth0 netns "+p.pid)
	ip(t, "link set "+port+" master br0 up")
	p.ip("link set eth0 up")
	fatal.Await(t, port+" forwards", func() bool { return strings.Contains(ip(t, "-d link show "+port), "state forwarding") })
	return p
}

// hear makes the bridge believe that an address is behind a port, as an answer to ARP
// or neighbour discovery would.
func hear(t *testing.T, a, port string) {
	t.Helper()
	const hw = "02:00:00:00:99:99"
	run(t, strings.Fields("bridge fdb replace "+hw+" dev "+port+" master dynamic")...)
	ip(t, "neigh replace "+a+" lladdr "+hw+" dev br0 nud reachable")
}

func wantHome(t *testing.T, k *link.Kernel, when, a string, want []link.Found) {
	t.Helper()
	if h, known := homes(t, k, a); !known || !slices.Equal(h, want) {
		t.Errorf("%s: home of %s is %+v (known %v), want %+v", when, a, h, known, want)
	}
}

func at(port string, by link.Evidence) []link.Found {
	return []link.Found{{Home: link.Home{Iface: "br0", Port: port}, Evidence: by}}
}

func TestHomeOfBridgedAddresses(t *testing.T) {
	t.Parallel()
	k := kernel(t)
	bridged(t)
	for _, n := range []string{"6", "7"} {
		p := join(t, "port"+n)
		p.ip("addr add 10.1.0." + n + "/24 dev eth0")
		p.ip("addr add 2001:db8:1::" + n + "/64 dev eth0 nodad")
	}
	for _, n := range []string{"6", "7"} {
		for _, a := range []string{"10.1.0." + n, "2001:db8:1::" + n} {
			wantHome(t, k, "at once", a, at("port"+n, link.Seen))
		}
	}
	ip(t, "link del port6")
	wantHome(t, k, "after its port is gone", "10.1.0.6", nil)
}

// TestABridgeIsNotBelieved has the bridge hear an address from the port of another pod:
// before the pod that has it is there, while it is not ready, and after.
func TestABridgeIsNotBelieved(t *testing.T) {
	t.Parallel()
	k := kernel(t)
	bridged(t)
	neighbour := join(t, "port6")
	neighbour.ip("addr add 10.1.0.6/24 dev eth0")
	for _, a := range []string{"10.1.0.9", "2001:db8:1::9"} {
		wantHome(t, k, "before anybody says so", a, nil)
		hear(t, a, "port6")
		wantHome(t, k, "as the neighbour says", a, nil)
	}
	pod := join(t, "port9")
	for _, a := range []string{"10.1.0.9", "2001:db8:1::9"} {
		wantHome(t, k, "before the pod has its addresses", a, nil)
	}
	pod.ip("addr add 10.1.0.9/24 dev eth0")
	pod.ip("addr add 2001:db8:1::9/64 dev eth0 nodad")
	for _, a := range []string{"10.1.0.9", "2001:db8:1::9"} {
		wantHome(t, k, "when the pod has them", a, at("port9", link.Seen))
	}
	neighbour.ip("addr add 10.1.0.9/24 dev eth0")
	wantHome(t, k, "when the neighbour has it too", "10.1.0.9", append(at("port6", link.Seen), at("port9", link.Seen)...))
}

// TestAPortWithoutAddresses belongs to a container with a network stack of its own: it
// is at home where the bridge hears it.
func TestAPortWithoutAddresses(t *testing.T) {
	t.Parallel()
	k := kernel(t)
	bridged(t)
	join(t, "port6").ip("addr add 10.1.0.6/24 dev eth0")
	join(t, "port7")
	if h, known := homes(t, k, "10.1.0.7"); known {
		t.Errorf("the bridge has not heard 10.1.0.7, home %+v", h)
	}
	hear(t, "10.1.0.7", "port7")
	wantHome(t, k, "when it is heard", "10.1.0.7", at("port7", link.Heard))
}

// TestAnAddressBesideItsInterface is another interface's of the namespace, or that of
// one of several that are on the bridge.
func TestAnAddressBesideItsInterface(t *testing.T) {
	t.Parallel()
	k := kernel(t)
	bridged(t)
	p := join(t, "port6")
	p.ip("addr add 10.1.0.6/32 dev lo")
	wantHome(t, k, "on an interface that is no port's", "10.1.0.6", at("port6", link.Seen))
	ip(t, "link add port7 type veth peer name eth1 netns "+p.pid)
	ip(t, "link set port7 master br0 up")
	p.ip("addr add 10.1.0.7/32 dev eth1")
	wantHome(t, k, "on the second interface", "10.1.0.7", at("port7", link.Seen))
	wantHome(t, k, "on no interface of the bridge", "10.1.0.6", append(at("port6", link.Seen), at("port7", link.Seen)...))
}

func TestIndexes(t *testing.T) {
	t.Parallel()
	k := kernel(t)
	names := func() []string {
		got, err := k.Indexes()
		fatal.If(t, err)
		return slices.Sorted(maps.Keys(got))
	}
	last := 0
	for _, steps := range []struct {
		do   string
		want []string
	}{
		{"link set lo up", []string{"lo"}},
		{"link add veth5 type veth peer name a-name-of-15-cc", []string{"a-name-of-15-cc", "lo", "veth5"}},
		{"link del veth5", []string{"lo"}},
		{"link add veth5 type veth peer name a-name-of-15-cc", []string{"a-name-of-15-cc", "lo", "veth5"}},
	} {
		ip(t, steps.do)
		if got := names(); !slices.Equal(got, steps.want) {
			t.Errorf("after %s: %v, want %v", steps.do, got, steps.want)
		}
		if got, _ := k.Indexes(); got["veth5"] != 0 {
			if got["veth5"] == last {
				t.Error("an interface that was made anew has the index of before")
			}
			last = got["veth5"]
		}
	}
	ip(t, "link del veth5")
	// More than one message holds.
	want := []string{"lo"}
	for i := range 100 {
		here, there := fmt.Sprintf("here%d", i), fmt.Sprintf("there%d", i)
		ip(t, "link add "+here+" type veth peer name "+there)
		want = append(want, here, there)
	}
	slices.Sort(want)
	if got := names(); !slices.Equal(got, want) {
		t.Errorf("%d of %d interfaces", len(got), len(want))
	}
}

// TestUplinks: interfaces with addresses, and those of default routes of either family, also of several hops.
func TestUplinks(t *testing.T) {
	t.Parallel()
	k := kernel(t)
	for _, do := range []string{
		"link set lo up", "addr add 192.0.2.9/32 dev lo", "link add b5 type veth peer name a5", "link set a5 up", "link set b5 up", "link add c5 type veth peer name d5", "link set c5 up",
		"link set d5 up", "addr add 192.0.2.1/24 dev b5", "addr add 2001:db8::1/64 dev b5 nodad", "route add default nexthop dev c5 nexthop dev d5", "route add 198.51.100.0/24 dev a5", "-6 route add default dev a5",
	} {
		ip(t, do)
	}
	got, err := k.Uplinks()
	fatal.If(t, err)
	var texts []string
	for _, u := range got {
		addrs := slices.DeleteFunc(u.Addrs, netip.Addr.IsLinkLocalUnicast)
		texts = append(texts, fmt.Sprint(u.Name, addrs, u.Default))
	}
	diff.Error(t, []string{"a5[] true", "b5[192.0.2.1 2001:db8::1] false", "c5[] true", "d5[] true"}, texts)
}

func TestEndpointAddresses(t *testing.T) {
	t.Parallel()
	k := kernel(t)
	ip(t, "link add veth5 type veth peer name peer5")
	ip(t, "addr add 198.51.100.1/24 dev veth5")
	ip(t, "link set veth5 up")
	ip(t, "link set peer5 up")
	v4, v6 := addr("169.254.20.64"), addr("fd5c:7a1e:93b4::1:0")
	has := func(want bool) {
		t.Helper()
		all, err := k.Addrs()
		fatal.If(t, err)
		for _, a := range []netip.Addr{v4, v6} {
			if slices.Contains(all, a) != want {
				t.Errorf("%s is an address of the node: %v", a, !want)
			}
		}
		if !slices.Contains(all, addr("198.51.100.1")) {
			t.Error("an address that is not ours is gone")
		}
	}
	has(false)
	for range 2 {
		for _, a := range []netip.Addr{v4, v6} {
			fatal.If(t, k.AddAddr(a))
		}
		has(true)
	}
	line := func(a netip.Addr) string {
		for l := range strings.Lines(ip(t, "-o addr show")) {
			if strings.Contains(l, " "+a.String()+"/") {
				return l
			}
		}
		return ""
	}
	if l := line(v4); !strings.Contains(l, "/32 scope host") {
		t.Errorf("the IPv4 address has not the scope of the host: %s", l)
	}
	if l := line(v6); !strings.Contains(l, "/128") || !strings.Contains(l, "deprecated") || strings.Contains(l, "tentative") {
		t.Errorf("the IPv6 address is not deprecated from the start: %s", l)
	}
	// The node's own source address towards pods is unchanged.
	if r := ip(t, "route get 198.51.100.9"); !strings.Contains(r, "src 198.51.100.1") {
		t.Errorf("the source towards pods became another: %s", r)
	}
	for range 2 {
		for _, a := range []netip.Addr{v4, v6} {
			fatal.If(t, k.DelAddr(a))
		}
		has(false)
	}
	for range 2 {
		fatal.If(t, k.RemoveCarrier())
	}
	if links, err := k.Indexes(); links["namegate0"] != 0 || links["lo"] == 0 || err != nil {
		t.Errorf("the carrier is left, or the loopback interface gone: %v, %v", links, err)
	}
}

func TestAddressesRemovedByAnotherAgent(t *testing.T) {
	t.Parallel()
	k := kernel(t)
	later, err := link.Open()
	fatal.If(t, err)
	defer later.Close()
	a := addr("169.254.20.64")
	fatal.If(t, k.AddAddr(a))
	fatal.If(t, later.DelAddr(a))
	if all, err := k.Addrs(); err != nil || slices.Contains(all, a) {
		t.Errorf("addresses %v, %v", all, err)
	}
}

func TestWatchTellsOfChanges(t *testing.T) {
	t.Parallel()
	k := kernel(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	events, err := k.Watch(ctx, func(err error) { t.Error(err) })
	fatal.If(t, err)
	for _, change := range []string{
		"link add veth5 type veth peer name peer5", "link set veth5 up", "link set peer5 up", "addr add 10.1.0.1/24 dev veth5",
		"route add 10.2.0.0/24 dev veth5", "neigh add 10.1.0.5 lladdr 02:00:00:00:00:05 dev veth5", "link del veth5",
	} {
		// A late event of an earlier change does no harm.
		select {
		case <-events:
		case <-time.After(50 * time.Millisecond):
		}
		ip(t, change)
		select {
		case <-events:
		case <-time.After(time.Minute):
			t.Errorf("nothing is told of: ip %s", change)
		}
	}
}
