package layout_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// flowStage is a node with a resolver and three agents, of each family, whose servers over TCP answer
// with their own addresses. Connection tracking is off for the resolver, as for NodeLocal DNSCache.
type flowStage struct {
	*listener
	asked atomic.Int64 // connections that came to the resolvers
	state layout.State
}

const (
	flowResolver4, flowResolver6 = "169.254.20.10", "fd00:20::10"
	flowAgent4, flowAgent6       = "169.254.20.%d", "fd5c:7a1e:93b4::1:%d"
)

func newFlowStage(w *listener) *flowStage {
	s := &flowStage{listener: w}
	both := slices.Concat(w.addrs("a"), w.addrs("b"))
	s.state = layout.State{Intercepted: both, Known: both}
	for _, resolver := range []string{flowResolver4, flowResolver6} {
		s.serve(resolver, &s.asked)
	}
	for agent := 64; agent < 67; agent++ {
		s.serve(fmt.Sprintf(flowAgent4, agent), new(atomic.Int64))
		s.serve(fmt.Sprintf(flowAgent6, agent), new(atomic.Int64))
	}
	w.pipe(`table inet cache {
		chain pre { type filter hook prerouting priority raw; ip daddr 169.254.20.10 th dport 53 notrack; ip6 daddr fd00:20::10 th dport 53 notrack; }
		chain out { type filter hook output priority raw; ip saddr 169.254.20.10 th sport 53 notrack; ip6 saddr fd00:20::10 th sport 53 notrack; }
	}`)
	return s
}

// serve answers every read with the address.
func (s *flowStage) serve(addr string, asked *atomic.Int64) {
	s.t.Helper()
	a := netip.MustParseAddr(addr)
	fatal.If(s.t, s.Node.IP("addr", "add", fmt.Sprintf("%s/%d", a, a.BitLen()), "dev", "lo", "nodad"))
	l, err := s.Node.Listen(netip.AddrPortFrom(a, 53).String())
	fatal.If(s.t, err)
	s.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			asked.Add(1)
			go func() {
				defer c.Close()
				for b := make([]byte, 1); ; {
					if _, err := c.Read(b); err != nil {
						return
					}
					_, _ = io.WriteString(c, addr+"\n")
				}
			}()
		}
	}()
}

// led brings a state into force with an agent as the server, and those before it as predecessors.
func (s *flowStage) led(agent int, before ...int) {
	s.t.Helper()
	s.state.Resolvers, s.state.Predecessor = map[netip.Addr]netip.Addr{}, map[netip.Addr]netip.Addr{}
	for resolver, of := range map[string]string{flowResolver4: flowAgent4, flowResolver6: flowAgent6} {
		s.state.Resolvers[netip.MustParseAddr(resolver)] = netip.MustParseAddr(fmt.Sprintf(of, agent))
		for _, b := range before {
			s.state.Predecessor[netip.MustParseAddr(fmt.Sprintf(of, b))] = netip.MustParseAddr(resolver)
		}
	}
	s.apply(s.state)
}

// alive keeps the dead-man switch on for the rest of the test, or off.
func (s *flowStage) alive(on bool) {
	s.t.Helper()
	if s.do(s.tables.Disable); on {
		s.pipe("add element inet namegate alive { 53 timeout 1h }")
	}
}

// connect opens a connection from a pod, by a port of its own.
func (s *flowStage) connect(pod, resolver string, port int) net.Conn {
	s.t.Helper()
	var c net.Conn
	d := net.Dialer{Timeout: lab.Limit, LocalAddr: &net.TCPAddr{Port: port}, Control: func(_, _ string, raw syscall.RawConn) (err error) {
		_ = raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
		return err
	}}
	var err error
	// A process that another test is about to start may still have the last connection of the port.
	fatal.Await(s.t, "the port is free", func() bool {
		err = s.Pod(pod).Do(func() (err error) { c, err = d.Dial("tcp", net.JoinHostPort(resolver, "53")); return err })
		return !errors.Is(err, unix.EADDRNOTAVAIL)
	})
	fatal.If(s.t, err)
	_ = c.(*net.TCPConn).SetLinger(0) // the port is free after it
	s.t.Cleanup(func() { c.Close() })
	return c
}

// server asks on a connection and returns who answers.
func server(c net.Conn) string {
	_ = c.SetDeadline(time.Now().Add(lab.Limit))
	b := make([]byte, 64)
	if _, err := c.Write([]byte("?")); err != nil {
		return err.Error()
	}
	n, err := c.Read(b)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(b[:n]))
}

// TestConnectionsKeepTheirServer: a connection of DNS over TCP stays with the server that its SYN
// was led to, whatever the dead-man switch and the agent become, and with the resolver if no agent
// was alive. A port that is used again has the server of the new SYN.
func TestConnectionsKeepTheirServer(t *testing.T) {
	t.Parallel()
	onEachListener(t, func(t *testing.T, w *listener) {
		s := newFlowStage(w)
		type kept struct {
			net.Conn
			server string
		}
		var open []kept
		check := func(when string) {
			t.Helper()
			for _, c := range open {
				diff.Equal(t, c.server, server(c), when, "a connection is answered by")
			}
		}
		end := func() {
			for _, c := range open {
				c.Close()
			}
			open = nil
		}
		begin := func(port int, server4, server6 string) {
			t.Helper()
			open = append(open, kept{s.connect("a", flowResolver4, port), server4}, kept{s.connect("a", flowResolver6, port), server6})
		}
		agent := func(n int) (string, string) { return fmt.Sprintf(flowAgent4, n), fmt.Sprintf(flowAgent6, n) }
		s.led(64)
		begin(4000, flowResolver4, flowResolver6)
		check("no agent is alive")
		s.alive(true)
		four, six := agent(64)
		begin(4001, four, six)
		check("with an agent")
		s.led(65, 64)
		four, six = agent(65)
		begin(4002, four, six)
		check("with the next agent")
		s.led(66, 64, 65)
		four, six = agent(66)
		begin(4003, four, six)
		check("with two agents that end")
		s.do(func(ctx context.Context) error { return s.tables.Rewrite(ctx, s.state) })
		check("after a repair")
		s.alive(false)
		begin(4004, flowResolver4, flowResolver6)
		check("no agent is alive any more")
		end()
		for port := 4001; port < 4004; port++ {
			begin(port, flowResolver4, flowResolver6)
		}
		check("by ports of earlier agents' connections")
		end()
		s.alive(true)
		begin(4004, four, six)
		check("by a port of the resolver's connection")
	})
}

// TestConnectionsHaveShares: connections of a pod that opens too many are dropped, and reported; they
// do not pass to the resolver, and another pod's are served. Without room for any, all are dropped.
func TestConnectionsHaveShares(t *testing.T) {
	t.Parallel()
	w := listen(t, lab.Routed)
	s := newFlowStage(w)
	s.led(64)
	s.alive(true)
	a, b := s.Pod("a"), s.Pod("b")
	for _, resolver := range []string{flowResolver4, flowResolver6} {
		own := map[string]netip.Addr{flowResolver4: a.Addr4, flowResolver6: a.Addr6}[resolver]
		fatal.Await(t, "connections of a pod that opens many are dropped", func() bool {
			s.opens("a", resolver, 400)()
			return slices.Contains(s.flowless(), own)
		})
		diff.Equal(t, fmt.Sprintf(map[string]string{flowResolver4: flowAgent4, flowResolver6: flowAgent6}[resolver], 64), server(s.connect("b", resolver, 0)), "another pod is answered by")
	}
	if got := s.flowless(); slices.Contains(got, b.Addr4) || slices.Contains(got, b.Addr6) {
		t.Errorf("%v are said to be dropped", got)
	}
	var all strings.Builder
	all.WriteString("flush set inet namegate dnsflows4\nadd element inet namegate dnsflows4 { ")
	for n := range 1 << 17 {
		fmt.Fprintf(&all, "10.9.%d.%d . %d . 169.254.20.64 timeout 1h,", n>>8&0xff, n&0xff, 1+n>>16)
	}
	s.pipe(all.String() + " }")
	end := s.opens("b", flowResolver4, 1)
	fatal.Await(t, "a connection without room is dropped", func() bool { return slices.Contains(s.flowless(), b.Addr4) })
	end()
	diff.Equal(t, 0, s.asked.Load(), "connections came to the resolver")
}

// opens begins connections from a pod at once, until end.
func (s *flowStage) opens(pod, resolver string, count int) (end func()) {
	var fds []int
	fatal.If(s.t, s.Pod(pod).Do(func() error {
		to, family := netip.MustParseAddr(resolver), unix.AF_INET
		at := unix.Sockaddr(&unix.SockaddrInet4{Port: 53})
		if to.Is4() {
			at.(*unix.SockaddrInet4).Addr = to.As4()
		} else {
			at, family = &unix.SockaddrInet6{Port: 53, Addr: to.As16()}, unix.AF_INET6
		}
		for range count {
			fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
			if err != nil {
				return err
			}
			fds = append(fds, fd)
			_ = unix.Connect(fd, at)
		}
		return nil
	}))
	return func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}
}

func (s *flowStage) flowless() (out []netip.Addr) {
	s.t.Helper()
	s.do(func(ctx context.Context) (err error) { out, err = s.tables.Flowless(ctx); return err })
	return out
}
