package listener

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/namegate/namegate/stats"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

var loopback = netip.MustParseAddrPort("127.0.0.1:0")

// echo replies with what arrives: to every second packet later, with others.
type echo struct {
	*Server
	counters stats.Counters[atomic.Uint64]
}

func newEcho(t *testing.T) *echo {
	e := new(echo)
	e.Server = New(Options{Counters: &e.counters, Step: func(string) {}, Handler: func(netip.Addr) Handler { return e },
		Protect: func(_ string, f func()) bool { f(); return true }})
	t.Cleanup(func() { e.Close(context.Background()) })
	return e
}

func (e *echo) listen(t *testing.T, addrs ...netip.AddrPort) []netip.AddrPort {
	t.Helper()
	fatal.If(t, e.Listen(addrs))
	return e.Addrs()
}

func (e *echo) Packets(b Batch) {
	for i := range b.Len {
		p := b.Packet(i)
		if p.Bytes[0]%2 == 0 {
			p.Reply(copy(p.Room(), p.Bytes))
			continue
		}
		to, packet := p.Later(), bytes.Clone(p.Bytes)
		go func() {
			to.Reply(packet, packet[0]%4 == 1)
			to.Done()
			e.SendReplies()
		}()
	}
}

func (e *echo) Connect(c *Conn) (Client, bool) { return echoClient{c}, true }

type echoClient struct{ *Conn }

func (c echoClient) Message(packet []byte) bool {
	c.Begin()
	go func() {
		c.Send(packet)
		c.Done()
	}()
	return true
}

func (echoClient) Disconnect() {}

// packet is packet i of a test.
func packet(i int) []byte { return append([]byte{byte(i)}, "some twenty bytes more"...) }

func dial(t *testing.T, network string, to netip.AddrPort) net.Conn {
	t.Helper()
	c, err := net.Dial(network, to.String())
	fatal.If(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

// replies reads the packets 0 to n-1, in any order.
func replies(t *testing.T, n int, read func(buf []byte) (int, error)) {
	t.Helper()
	left := map[string]bool{}
	for i := range n {
		left[string(packet(i))] = true
	}
	for range n {
		buf := make([]byte, 512)
		got, err := read(buf)
		if err != nil || !left[string(buf[:got])] {
			t.Fatalf("%q, %v", buf[:got], err)
		}
		delete(left, string(buf[:got]))
	}
}

func framed(p []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(p))), p...)
}

// messages reads the messages of a connection.
func messages(c net.Conn) func(buf []byte) (int, error) {
	return func(buf []byte) (int, error) {
		var length [2]byte
		if _, err := io.ReadFull(c, length[:]); err != nil {
			return 0, err
		}
		return io.ReadFull(c, buf[:binary.BigEndian.Uint16(length[:])])
	}
}

func TestListenAddsAndRemoves(t *testing.T) {
	e := newEcho(t)
	first := e.listen(t, loopback)[0]
	second := netip.MustParseAddrPort("127.0.0.9:0")
	addrs := e.listen(t, loopback, second)
	if len(addrs) != 2 || addrs[0] != first {
		t.Fatalf("addresses %v, first was %v", addrs, first)
	}
	c := dial(t, "udp", addrs[1])
	if _, err := c.Write(packet(0)); err != nil {
		t.Fatal(err)
	}
	replies(t, 1, c.Read)
	diff.Error(t, addrs[1:], e.listen(t, second), "addresses")
	if _, err := net.DialTimeout("tcp", first.String(), time.Second); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the removed address: %v", err)
	}
}

func TestListenNamesTheTakenPort(t *testing.T) {
	e := newEcho(t)
	at := e.listen(t, loopback)
	udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(loopback))
	fatal.If(t, err)
	defer udp.Close()
	tcp, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(loopback))
	fatal.If(t, err)
	defer tcp.Close()
	for protocol, taken := range map[string]netip.AddrPort{"UDP": udp.LocalAddr().(*net.UDPAddr).AddrPort(), "TCP": tcp.Addr().(*net.TCPAddr).AddrPort()} {
		err := e.Listen([]netip.AddrPort{loopback, taken})
		if err == nil || !strings.Contains(err.Error(), taken.String()) || !strings.Contains(err.Error(), protocol) || !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("%s: %v", protocol, err)
		}
		diff.Error(t, at, e.Addrs(), "after the error it serves")
	}
	if err := e.Listen([]netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:0")}); err == nil {
		t.Error("listened on every address")
	}
}

// TestReplySourceIsTheQueriedAddress: each address has a socket of its own.
func TestReplySourceIsTheQueriedAddress(t *testing.T) {
	e := newEcho(t)
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP("127.0.0.2")})
	fatal.If(t, err)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	buf := make([]byte, 512)
	for _, at := range e.listen(t, loopback, netip.MustParseAddrPort("127.0.0.9:0"), netip.MustParseAddrPort("127.0.0.10:0")) {
		for i := range 4 { // at once, and later in both ways
			if _, err := c.WriteToUDPAddrPort(packet(i), at); err != nil {
				t.Fatal(err)
			}
			if _, from, err := c.ReadFromUDPAddrPort(buf); err != nil || from != at {
				t.Errorf("asked %s, answered by %s (%v)", at, from, err)
			}
		}
	}
}

// TestQueuedPacketsAreAnswered: packets that the kernel holds when an address is taken
// away are answered first.
func TestQueuedPacketsAreAnswered(t *testing.T) {
	e := newEcho(t)
	c := dial(t, "udp", e.listen(t, loopback)[0])
	const n = 50
	for i := range n {
		if _, err := c.Write(packet(i)); err != nil {
			t.Fatal(err)
		}
	}
	e.listen(t)
	replies(t, n, c.Read)
}

// TestQueuedConnectionsAreAnswered: connections that the kernel holds when an address is taken away are
// answered first.
func TestQueuedConnectionsAreAnswered(t *testing.T) {
	e := newEcho(t)
	held := make(chan struct{})
	e.options.Protect = func(_ string, f func()) bool { <-held; f(); return true }
	at := e.listen(t, loopback)[0]
	var conns []net.Conn
	for i := range 10 {
		c := dial(t, "tcp", at)
		_, err := c.Write(framed(packet(i)))
		fatal.If(t, err)
		conns = append(conns, c)
	}
	time.AfterFunc(2*lastPackets, func() { close(held) })
	e.listen(t)
	for i, c := range conns {
		got := make([]byte, len(framed(packet(i))))
		if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, framed(packet(i))) {
			t.Errorf("connection %d: %x, %v", i, got, err)
		}
	}
}

// TestPipelining: more messages on one connection than may be in flight at once, all sent
// before the first answer is read.
func TestPipelining(t *testing.T) {
	e := newEcho(t)
	c := dial(t, "tcp", e.listen(t, loopback)[0])
	const n = 5 * pipelined
	for i := range n {
		if _, err := c.Write(framed(packet(i))); err != nil {
			t.Fatal(err)
		}
	}
	replies(t, n, messages(c))
}

// TestQueryInPieces: a message may arrive byte by byte.
func TestQueryInPieces(t *testing.T) {
	e := newEcho(t)
	c := dial(t, "tcp", e.listen(t, loopback)[0])
	for _, b := range framed(packet(0)) {
		if _, err := c.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	replies(t, 1, messages(c))
}
