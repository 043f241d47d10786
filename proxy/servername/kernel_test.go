package servername

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/netns"
)

// within tells whether the test runs in a network namespace of its own. It begins in the machine's, and runs itself again.
func within(t *testing.T) bool {
	const variable = "NAMEGATE_TEST_WITHIN"
	if os.Getuid() != 0 {
		t.Fatal("this test asks the kernel: run it as root")
	}
	if os.Getenv(variable) == t.Name() {
		run(t, "ip link set lo up")
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), variable+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return false
}

func run(t *testing.T, commands ...string) {
	t.Helper()
	for _, c := range commands {
		if out, err := exec.Command("sh", "-c", c).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", c, err, out)
		}
	}
}

// TestOriginalDestination: a translated connection arrives at its original destination, of both families.
func TestOriginalDestination(t *testing.T) {
	if !within(t) {
		return
	}
	for _, f := range []struct{ pod, to, relay, family string }{
		{"192.0.2.50", "198.51.100.7", "192.0.2.1", "ip"},
		{"2001:db8::50", "2001:db8:1::7", "2001:db8::1", "ip6"},
	} {
		pod, to, at := netip.MustParseAddr(f.pod), netip.AddrPortFrom(netip.MustParseAddr(f.to), 443), netip.AddrPortFrom(netip.MustParseAddr(f.relay), 7443)
		for _, a := range []string{f.pod, f.to, f.relay} {
			run(t, fmt.Sprintf("ip addr add %s/%d dev lo", a, pod.BitLen()))
		}
		run(t, fmt.Sprintf("nft 'table %s led { chain led { type nat hook output priority -100; %s saddr %s %s daddr %s tcp dport 443 dnat to %s; }; }'", f.family, f.family, pod, f.family, to.Addr(), at))
		fatal.Await(t, "the addresses are there", func() bool {
			l, err := net.Listen("tcp", to.String())
			if err == nil {
				_ = l.Close()
			}
			return err == nil
		})
		target, err := Listen(t.Context(), to)
		fatal.If(t, err)
		l, err := Listen(t.Context(), at)
		fatal.If(t, err)
		j := &judge{verdict: policy.CheckFlow, named: policy.CheckFlow, pods: map[netip.Addr]policy.PodRef{pod: podA}, granted: map[policy.PodRef][]string{podA: {"good.test"}}}
		r := New(Options{Judge: j, Limits: corefile.DefaultRelayLimits, Denied: func(d Denial) { t.Error(d) }, Protect: func(_ string, f func()) bool { f(); return true }})
		go r.Serve(l)
		c, err := (&net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(pod, 0))}).Dial("tcp", to.String())
		fatal.If(t, err)
		sent := helloFor("good.test")
		fatal.If(t, write(c.(*net.TCPConn), sent))
		s, err := target.AcceptTCP()
		fatal.If(t, err)
		expect(t, s, string(sent))
		diff.Equal(t, false, addrPort(s.RemoteAddr()).Addr() == pod, "the node connects")
		direct, err := (&net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(pod, 0))}).Dial("tcp", at.String())
		if err == nil {
			_, err = direct.Read(make([]byte, 1))
		}
		diff.Is(t, unix.ECONNRESET, err, "a direct connection")
		reset(c.(*net.TCPConn))
		reset(s)
	}
}

// TestLocalPorts: connections that the client ends first leave ports that wait, and these serve the next ones. Without
// TCP timestamps they do not; the node's programs have ports left in each case.
func TestLocalPorts(t *testing.T) {
	if !within(t) {
		return
	}
	run(t, "ip addr add 192.0.2.7/32 dev lo", "ip addr add 192.0.2.1/32 dev lo")
	fatal.If(t, netns.Sysctl("net.ipv4.ip_local_port_range=40000 40099", "net.ipv4.tcp_tw_reuse=0"))
	for _, timestamps := range []bool{true, false} {
		l := newLab(t, corefile.DefaultRelayLimits)
		_ = l.target.Close()
		l.port = 10000
		at := "192.0.2.7:443"
		if !timestamps {
			at, l.port = "192.0.2.7:444", 20000
			fatal.If(t, netns.Sysctl("net.ipv4.tcp_timestamps=0"))
		}
		var err error
		l.target, err = Listen(t.Context(), netip.MustParseAddrPort(at))
		fatal.If(t, err)
		fatal.If(t, l.target.SetDeadline(time.Now().Add(5*time.Second)))
		to := netip.MustParseAddrPort(at)
		l.lead(func(*net.TCPConn) (netip.AddrPort, error) { return to, nil })
		once := func() {
			c := l.dial()
			fatal.If(t, write(c, helloFor("good.test")))
			s, err := l.target.AcceptTCP()
			if err != nil {
				t.Fatal(err, l.Stats())
			}
			fatal.If(t, write(s, answer))
			expect(t, c, string(answer))
			fatal.If(t, c.CloseWrite())
			_, _ = io.Copy(io.Discard, s)
			fatal.If(t, s.Close())
			expectEnd(t, c)
			reset(c)
		}
		ports := len(l.ports.all)
		diff.Equal(t, 60, ports)
		times := 3 * ports
		if !timestamps {
			times = ports / 2
		}
		for range times {
			once()
		}
		fatal.Await(t, "all have ended", func() bool { return l.Stats().Connections == 0 })
		l.shares.mu.Lock()
		waiting := l.shares.to[key{podA, to}]
		l.shares.mu.Unlock()
		if timestamps {
			diff.Equal(t, 0, waiting, "ports that wait and count")
		} else {
			diff.Equal(t, times, waiting, "ports that wait and count")
			for ; len(l.denied) == 0 && times < ports; times++ {
				fatal.If(t, write(l.dial(), helloFor("good.test")))
				time.Sleep(5 * time.Millisecond)
			}
			fatal.If(t, write(l.dial(), helloFor("good.test")))
			if times < ports*9/10 {
				t.Errorf("%d of %d ports served", times, ports)
			}
			d := l.denial()
			diff.Equal(t, ReasonLimit, d.Reason)
			diff.Has(t, "local port", d.Detail)
		}
		own, err := net.Dial("tcp", at)
		fatal.If(t, err, "a program of the node")
		_ = own.Close()
	}
}

// TestManyConnections: a client that opens and ends connections to one address loses none, nor does a program of the
// node that connects there throughout: more than all local ports in less time than a port waits.
func TestManyConnections(t *testing.T) {
	if !within(t) {
		return
	}
	run(t, "ip addr add 192.0.2.7/32 dev lo", "ip addr add 192.0.2.1/32 dev lo")
	fatal.If(t, netns.Sysctl("net.ipv4.ip_local_port_range=32768 34767", "net.ipv4.tcp_tw_reuse=0"))
	l := newLab(t, corefile.DefaultRelayLimits)
	l.port = 10000
	to := netip.MustParseAddrPort("192.0.2.7:443")
	target, err := Listen(t.Context(), to)
	fatal.If(t, err)
	go func() {
		for {
			s, err := target.AcceptTCP()
			if err != nil {
				return
			}
			go func() {
				_ = write(s, answer)
				_, _ = io.Copy(io.Discard, s)
				_ = s.Close()
			}()
		}
	}()
	l.lead(func(*net.TCPConn) (netip.AddrPort, error) { return to, nil })
	sent := helloFor("good.test")
	for i := range 2500 {
		c := l.dial()
		fatal.If(t, write(c, sent))
		expect(t, c, string(answer))
		fatal.If(t, c.CloseWrite())
		expectEnd(t, c)
		reset(c)
		if i%10 == 0 {
			own, err := net.Dial("tcp", to.String())
			fatal.If(t, err, "a program of the node")
			reset(own.(*net.TCPConn))
		}
	}
	diff.Equal(t, 0, len(l.denied))
	_ = target.Close()
}

func TestPortsOf(t *testing.T) {
	p := portsOf("32768\t60999\n", "40000-50000,32770\n")
	diff.Equal(t, (60999-32768+1-10002)*3/5, len(p.all))
	seen := map[uint16]bool{}
	for range p.all {
		port := p.pick()
		if seen[port] || port >= 40000 && port <= 50000 || port == 32770 {
			t.Fatal(port)
		}
		seen[port] = true
	}
	diff.Equal(t, maxPorts, len(portsOf("32768 60999", "\n").all))
	diff.Equal(t, maxPorts, len(portsOf("", "").all))
	diff.Equal(t, 0, portsOf("1 1", "").pick())
}
