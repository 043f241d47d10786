package inject_test

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/kernel/inject"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// hooks counts, at every netfilter hook on the way to a local socket, the packets
// to port 53, by the interface that the hook names. %s is the interface.
const hooks = `
table inet look {
	set raw { type ifname . inet_service; flags dynamic; size 64; }
	set mangle { type ifname . inet_service; flags dynamic; size 64; }
	set dstnat { type ifname . inet_service; flags dynamic; size 64; }
	set input { type ifname . inet_service; flags dynamic; size 64; }
	chain raw { type filter hook prerouting priority -310; udp dport 53 update @raw { iifname . udp sport }; }
	chain mangle { type filter hook prerouting priority -150; udp dport 53 update @mangle { iifname . udp sport }; }
	chain dstnat { type nat hook prerouting priority -110; udp dport 53 update @dstnat { iifname . udp sport }; }
	chain input { type filter hook input priority 0; ct state new udp dport 53 update @input { iifname . udp sport }; }
}
table bridge look {
	set port { type ifname . inet_service; flags dynamic; size 64; }
	chain port { type filter hook prerouting priority -300; udp dport 53 update @port { iifname . udp sport }; }
}
`

func newLab(t *testing.T, network lab.Network) (*lab.Lab, *lab.Pod) {
	t.Helper()
	l, err := lab.New(network)
	fatal.If(t, err)
	t.Cleanup(func() {
		if err := l.Remove(); err != nil {
			t.Error(err)
		}
	})
	pod, err := l.AddPod("web", 5)
	fatal.If(t, err)
	if _, err := l.AddPod("other", 6); err != nil {
		t.Fatal(err)
	}
	fatal.If(t, l.Ready())
	return l, pod
}

func open(t *testing.T, l *lab.Lab) *inject.Kernel {
	t.Helper()
	var r *inject.Kernel
	fatal.If(t, l.Node.Do(func() (err error) { r, err = inject.Open(); return err }))
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// unsupported tells whether an error says that the kernel lacks a part.
func unsupported(err error) bool { return strings.Contains(err.Error(), "load the modules") }

func show(t *testing.T, l *lab.Lab, words ...string) string {
	t.Helper()
	out, err := l.Node.Run(words[0], words[1:]...)
	fatal.If(t, err)
	return out
}

func load(t *testing.T, l *lab.Lab, rules string) {
	t.Helper()
	fatal.If(t, l.Node.Pipe(rules, "nft", "-f", "-"))
}

// TestSend: a packet that is put into a pod's link comes to a socket of the node,
// through every hook, as if the pod had sent it.
func TestSend(t *testing.T) {
	t.Parallel()
	for _, network := range []lab.Network{lab.Routed, lab.Bridged} {
		t.Run(string(network), func(t *testing.T) {
			t.Parallel()
			l, pod := newLab(t, network)
			load(t, l, hooks)
			r := open(t, l)
			before := show(t, l, "bridge", "fdb", "show", "brport", pod.Iface)
			for _, c := range []struct{ source, to netip.Addr }{
				{pod.Addr4, netip.MustParseAddr("192.168.77.1")}, {pod.Addr6, netip.MustParseAddr("fd00:77::1")},
			} {
				at := netip.AddrPortFrom(c.to, 53)
				conn, err := l.Node.ListenPacket("udp", at.String())
				fatal.If(t, err)
				defer conn.Close()
				from := netip.AddrPortFrom(c.source, 4242)
				fatal.If(t, r.Send(pod.Iface, datagram(from, at, "hello")))
				_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
				buf := make([]byte, 100)
				n, src, err := conn.ReadFrom(buf)
				if err != nil || string(buf[:n]) != "hello" || src.String() != from.String() {
					t.Fatalf("from %s: %q of %v, %v", from, buf[:n], src, err)
				}
			}
			iface := pod.Iface
			if network == lab.Bridged {
				iface = "br0"
				if got := show(t, l, "nft", "list", "set", "bridge", "look", "port"); !strings.Contains(got, `"`+pod.Iface+`" . 4242`) {
					t.Errorf("the bridge saw another port:\n%s", got)
				}
			}
			for _, hook := range []string{"raw", "mangle", "dstnat", "input"} {
				if got := show(t, l, "nft", "list", "set", "inet", "look", hook); !strings.Contains(got, `{ "`+iface+`" . 4242 }`) {
					t.Errorf("the hook saw not just %s:\n%s", iface, got)
				}
			}
			if after := show(t, l, "bridge", "fdb", "show", "brport", pod.Iface); after != before {
				t.Errorf("the bridge learnt something\nbefore: %s\nafter: %s", before, after)
			}
		})
	}
}

// TestNodeIsAsBefore: nothing but our packets is on the pair, and nothing of it
// stays.
func TestNodeIsAsBefore(t *testing.T) {
	t.Parallel()
	l, pod := newLab(t, lab.Routed)
	links := show(t, l, "ip", "-br", "link")
	addrs := show(t, l, "ip", "-br", "addr")
	first := open(t, l)
	for _, name := range []string{"namegate-t0", "namegate-t1"} {
		diff.Equal(t, "", show(t, l, "ip", "-o", "addr", "show", "dev", name), "addresses of the pair")
		if err := l.Node.Do(func() error {
			_, err := os.Stat("/proc/sys/net/ipv6/conf/" + name)
			if !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("%s has IPv6: %w", name, err)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	// Another agent replaces the pair; the first one leaves that to it.
	second := open(t, l)
	fatal.If(t, first.Close())
	packet := datagram(netip.AddrPortFrom(pod.Addr4, 4242), netip.MustParseAddrPort("192.168.77.1:53"), "hello")
	if err := second.Send(pod.Iface, packet); err != nil {
		t.Errorf("after the first agent left: %v", err)
	}
	if err := first.Send(pod.Iface, packet); err == nil {
		t.Error("a closed one sends")
	}
	show(t, l, "ip", "link", "del", "namegate-t0")
	if err := second.Send(pod.Iface, packet); err != nil {
		t.Errorf("after somebody removed the pair: %v", err)
	}
	for range 2 {
		fatal.If(t, second.Close())
	}
	diff.Equal(t, links, show(t, l, "ip", "-br", "link"), "links")
	open(t, l) // this one dies
	for range 2 {
		fatal.If(t, l.Node.Do(inject.Remove))
	}
	diff.Equal(t, addrs, show(t, l, "ip", "-br", "addr"), "addresses")
}

// TestSendRefuses: what cannot be sent is an error that names the interface, and
// spoils nothing.
func TestSendRefuses(t *testing.T) {
	t.Parallel()
	l, pod := newLab(t, lab.Bridged)
	r := open(t, l)
	to := netip.MustParseAddrPort("192.168.77.1:53")
	good := datagram(netip.AddrPortFrom(pod.Addr4, 4242), to, "hello")
	for what, c := range map[string]struct {
		iface  string
		packet []byte
	}{
		"an interface that is not there": {"veth99", good},
		"no packet":                      {pod.Iface, nil},
		"half a header":                  {pod.Iface, good[:19]},
		"another version":                {pod.Iface, append([]byte{0x55}, good[1:]...)},
		"too long for the link":          {pod.Iface, append(good, make([]byte, 2000)...)},
		// The bridge would learn whatever address we made up.
		"an address that no neighbour has": {pod.Iface, datagram(netip.MustParseAddrPort("10.1.0.99:4242"), to, "hello")},
	} {
		if err := r.Send(c.iface, c.packet); err == nil || unsupported(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := r.Send(pod.Iface, good); err != nil {
		t.Errorf("after all these: %v", err)
	}
	show(t, l, "ip", "neigh", "flush", "dev", "br0")
	if err := r.Send(pod.Iface, good); err != nil {
		t.Errorf("after the node forgot its neighbours: %v", err)
	}
}

// TestTurns: pods are tested in turn by one pair; each packet comes in by its own
// pod's interface, also after an interface was replaced by another of its name.
func TestTurns(t *testing.T) {
	t.Parallel()
	l, web := newLab(t, lab.Routed)
	other := l.Pod("other")
	load(t, l, hooks)
	r := open(t, l)
	to := netip.MustParseAddrPort("192.168.77.1:53")
	port := uint16(1000)
	turn := func(p *lab.Pod) {
		t.Helper()
		port++
		fatal.If(t, r.Send(p.Iface, datagram(netip.AddrPortFrom(p.Addr4, port), to, "hello")))
		want := fmt.Sprintf(`"%s" . %d`, p.Iface, port)
		fatal.Await(t, want+" is in the set", func() bool { return strings.Contains(show(t, l, "nft", "list", "set", "inet", "look", "input"), want) })
	}
	turn(web)
	turn(other)
	turn(web)
	fatal.If(t, l.RemovePod("web"))
	turn(other)
	again, err := l.AddPod("web", 5)
	fatal.If(t, err)
	turn(again)
}

// TestWithoutRights says which one is missing.
func TestWithoutRights(t *testing.T) {
	t.Parallel()
	l, _ := newLab(t, lab.Routed)
	for _, right := range []string{"net_raw", "net_admin"} {
		out, err := l.Node.Run("setpriv", "--bounding-set", "-"+right, "--inh-caps", "-all", os.Args[0], "-test.run", "^TestOpensHere$", "-test.v", "-opens-here")
		if err == nil || !strings.Contains(out, "operation not permitted") {
			t.Errorf("without %s: %v\n%s", right, err, out)
		}
	}
	if out, err := l.Node.Run("setpriv", "--bounding-set", "-all,+net_admin,+net_raw", "--inh-caps", "-all", os.Args[0], "-test.run", "^TestOpensHere$", "-test.v", "-opens-here"); err != nil || !strings.Contains(out, "PASS: TestOpensHere") {
		t.Errorf("with just the two: %v\n%s", err, out)
	}
}

var opensHere = flag.Bool("opens-here", false, "let TestOpensHere make the links in the namespace it runs in")

// TestOpensHere is a child of TestWithoutRights.
func TestOpensHere(t *testing.T) {
	t.Parallel()
	if !*opensHere {
		t.Skip("it is run by TestWithoutRights")
	}
	r, err := inject.Open()
	fatal.If(t, err)
	packet := datagram(netip.MustParseAddrPort("10.1.0.5:4242"), netip.MustParseAddrPort("192.168.77.1:53"), "hello")
	fatal.If(t, r.Send("veth5", packet))
	fatal.If(t, r.Close())
}

// TestNeighboursKeepTheirPorts: if a pod made the node believe that its address is at a
// neighbour's hardware address, or the bridge's, our packet does not redirect the
// neighbour's frames to it.
func TestNeighboursKeepTheirPorts(t *testing.T) {
	t.Parallel()
	l, pod := newLab(t, lab.Bridged)
	other := l.Pod("other")
	r := open(t, l)
	at := func(p *lab.Pod) string {
		out, err := p.Run("ip", "-br", "link", "show", "eth0")
		fatal.If(t, err)
		return strings.Fields(out)[2] // name, state, address
	}
	packet := datagram(netip.AddrPortFrom(pod.Addr4, 4242), netip.MustParseAddrPort("192.168.77.1:53"), "hello")
	for what, hw := range map[string]string{"a neighbour's": at(other), "the bridge's": "02:00:00:00:00:01"} {
		show(t, l, "ip", "neigh", "replace", pod.Addr4.String(), "lladdr", hw, "dev", "br0", "nud", "reachable")
		if err := r.Send(pod.Iface, packet); err == nil || unsupported(err) || !strings.Contains(err.Error(), hw) {
			t.Errorf("%s: %v", what, err)
		}
		// Other addresses are learnt at any time, by the pods' own packets of IPv6.
		if got := show(t, l, "bridge", "fdb", "show", "brport", pod.Iface); strings.Contains(got, hw) {
			t.Errorf("%s: the bridge learnt it at the pod's port:\n%s", what, got)
		}
	}
	show(t, l, "ip", "neigh", "replace", pod.Addr4.String(), "lladdr", at(pod), "dev", "br0", "nud", "reachable")
	if err := r.Send(pod.Iface, packet); err != nil {
		t.Errorf("at its own: %v", err)
	}
	// A bridge forgets silent addresses after a while, and learns them again.
	show(t, l, "bridge", "fdb", "del", at(pod), "dev", pod.Iface, "master")
	if err := r.Send(pod.Iface, packet); err != nil {
		t.Errorf("after the bridge forgot it: %v", err)
	}
	if got := show(t, l, "bridge", "fdb", "show", "brport", pod.Iface); !strings.Contains(got, at(pod)) {
		t.Errorf("it is not learnt at its own port:\n%s", got)
	}
}
