package scenarios

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// beyondWindow is farther ahead than any window reaches.
const beyondWindow = 1 << 30

// Queues of TCP_REPAIR_QUEUE, and the end of repair without a window probe
// (linux/tcp.h).
const (
	recvQueue, sendQueue = 1, 2
	repairOffNoProbe     = -1
)

// sequence returns a connection's next sequence numbers.
func sequence(c net.Conn) (send, recv uint32, err error) {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	queue := func(fd, queue int) (uint32, error) {
		if err := unix.SetsockoptInt(fd, unix.SOL_TCP, unix.TCP_REPAIR_QUEUE, queue); err != nil {
			return 0, err
		}
		n, err := unix.GetsockoptInt(fd, unix.SOL_TCP, unix.TCP_QUEUE_SEQ)
		return uint32(n), err
	}
	ctlErr := raw.Control(func(f uintptr) {
		fd := int(f)
		if err = unix.SetsockoptInt(fd, unix.SOL_TCP, unix.TCP_REPAIR, 1); err != nil {
			return
		}
		if send, err = queue(fd, sendQueue); err == nil {
			recv, err = queue(fd, recvQueue)
		}
		if off := unix.SetsockoptInt(fd, unix.SOL_TCP, unix.TCP_REPAIR, repairOffNoProbe); err == nil {
			err = off
		}
	})
	if err == nil {
		err = ctlErr
	}
	return send, recv, err
}

// outOfWindow renders a segment of a connection that is far ahead. What acknowledges
// the right number may be answered with a reset that the sender takes for genuine.
func outOfWindow(c net.Conn, token []byte) ([]byte, error) {
	send, recv, err := sequence(c)
	if err != nil {
		return nil, fmt.Errorf("sequence numbers of %s: %w", c.LocalAddr(), err)
	}
	src, dst := netip.MustParseAddrPort(c.LocalAddr().String()), netip.MustParseAddrPort(c.RemoteAddr().String())
	b := lab.TCP(src, dst, lab.ACK|lab.PSH, token)
	binary.BigEndian.PutUint32(b[4:], send+beyondWindow)
	binary.BigEndian.PutUint32(b[8:], recv)
	b = lab.Summed(unix.IPPROTO_TCP, src.Addr(), dst.Addr(), b, 16)
	return lab.Packet{Src: src.Addr(), Dst: dst.Addr(), Proto: unix.IPPROTO_TCP, Payload: b}.Bytes(), nil
}

// countResets counts from now on the resets that reach a host.
func countResets(t *testing.T, h *lab.Host) func() string {
	t.Helper()
	programs := []string{"iptables", "ip6tables"}
	for _, program := range programs {
		if _, err := h.Run(program, "-A", "INPUT", "-p", "tcp", "--tcp-flags", "RST", "RST"); err != nil {
			t.Fatal(err)
		}
	}
	return func() string {
		t.Helper()
		var counts []string
		for _, program := range programs {
			out, err := h.Run(program, "-nvxL", "INPUT")
			fatal.If(t, err)
			lines := strings.Split(strings.TrimSpace(out), "\n")
			counts = append(counts, strings.Fields(lines[len(lines)-1])[0])
		}
		return strings.Join(counts, " ")
	}
}

// lineInto opens a connection from the world to a pod, whose end is the line's client.
func (s *stage) lineInto(pod string, to netip.Addr) *line {
	s.t.Helper()
	at, err := s.Pod(pod).Listen(netip.AddrPortFrom(to, 0).String())
	fatal.If(s.t, err)
	s.t.Cleanup(func() { at.Close() })
	server, err := s.World.Dial("tcp", at.Addr().String(), lab.Limit)
	fatal.If(s.t, err)
	s.t.Cleanup(func() { server.Close() })
	client, err := at.Accept()
	fatal.If(s.t, err)
	s.t.Cleanup(func() { client.Close() })
	l := &line{name: "the world's tcp to " + pod, conn: client, client: &end{write: client.Write}, server: &end{write: server.Write}}
	go l.client.hears(client.Read)
	go l.server.hears(server.Read)
	s.goesOn("at first", l)
	return l
}

// TestInvalidPacketsAreNotAnswered has a selected pod send segments that conntrack calls
// invalid, in allowed connections: one that it opened, and one that was opened to it. The
// segments are dropped and the connections live. An unselected pod's segments are
// forwarded as without the agent.
func TestInvalidPacketsAreNotAnswered(t *testing.T) {
	staged(t, onRouted, newForgeStage, func(t *testing.T, f *forgeStage) {
		fatal.If(t, f.Node.Sysctl("net.netfilter.nf_conntrack_tcp_be_liberal=0"))
		resets := countResets(t, f.Pod("a").Host)
		open := map[string][]*line{}
		for _, to := range []string{"198.51.100.3", "2001:db8:1::3"} {
			for _, pod := range []string{"a", "free"} {
				open[pod] = append(open[pod], f.line(pod, "tcp", netip.MustParseAddr(to)))
			}
		}
		open["a"] = append(open["a"], f.lineInto("a", f.Pod("a").Addr4), f.lineInto("a", f.Pod("a").Addr6))
		var all []sent
		for pod, lines := range open {
			for _, l := range lines {
				w := f.way(addrOf(l.conn.LocalAddr()), addrOf(l.conn.RemoteAddr()))
				packet, err := outOfWindow(l.conn, w.token())
				fatal.If(t, err)
				f.send(pod, w, [][]byte{packet})
				all = append(all, sent{"a segment far ahead on " + l.name, w, pod == "free"})
			}
		}
		f.judge(all)
		diff.Equal(t, "0 0", resets(), "resets over IPv4 and IPv6")
		for _, lines := range open {
			f.goesOn("after an invalid segment", lines...)
		}
	})
}

func addrOf(a net.Addr) netip.Addr { return netip.MustParseAddrPort(a.String()).Addr() }
