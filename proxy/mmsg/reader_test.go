package mmsg

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

func readerOn(t *testing.T, addr string) (*Reader, *Conn) {
	t.Helper()
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(addr)))
	if err != nil {
		t.Skip(err)
	}
	conn := connOf(t, c)
	return NewReader(conn), conn
}

func connOf(t *testing.T, c *net.UDPConn) *Conn {
	t.Helper()
	conn, err := NewConn(c)
	fatal.If(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// TestPollersWaitForPacketsAlone, and not for room in the socket.
func TestPollersWaitForPacketsAlone(t *testing.T) {
	_, conn := readerOn(t, "127.0.0.1:0")
	var of unix.Stat_t
	fatal.If(t, conn.Control(func(fd uintptr) { fatal.If(t, unix.Fstat(int(fd), &of)) }))
	var events []string
	all, _ := filepath.Glob("/proc/self/fdinfo/*")
	for _, path := range all {
		text, _ := os.ReadFile(path)
		for _, m := range regexp.MustCompile(fmt.Sprintf(`events: +(\w+) .* ino:%x `, of.Ino)).FindAllStringSubmatch(string(text), -1) {
			events = append(events, m[1])
		}
	}
	diff.Equal(t, fmt.Sprintf("[%x]", unix.EPOLLIN|unix.EPOLLERR|unix.EPOLLHUP), fmt.Sprint(events))
}

// receive returns how many packets come together.
func receive(b *Reader) (n int, err error) {
	err = b.Receive(func(packets int) bool {
		n = packets
		return false
	})
	return n, err
}

func clientOf(t *testing.T, c *Conn) *net.UDPConn {
	t.Helper()
	to, err := net.DialUDP("udp", nil, c.LocalAddr().(*net.UDPAddr))
	fatal.If(t, err)
	t.Cleanup(func() { _ = to.Close() })
	_ = to.SetDeadline(time.Now().Add(time.Minute))
	return to
}

// TestEachReplyReachesItsClient, for more packets than fit into one batch, over both
// families, of every length, with replies to some and in the reader's order.
func TestEachReplyReachesItsClient(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		b, server := readerOn(t, addr)
		var clients []*net.UDPConn
		for i := range 5 {
			c := clientOf(t, server)
			clients = append(clients, c)
			for j := range 15 {
				if _, err := c.Write(bytes.Repeat([]byte{byte(i), byte(j)}, 6+100*j)); err != nil {
					t.Fatal(err)
				}
			}
		}
		for taken := 0; taken < 75; {
			n, err := receive(b)
			if err != nil || n < 1 || n > batchSize {
				t.Fatalf("%d packets, %v", n, err)
			}
			taken += n
			for i := range n {
				packet, from := b.Packet(i)
				who := int(packet[0])
				if len(packet) != 2*(6+100*int(packet[1])) || from.String() != clients[who].LocalAddr().String() {
					t.Fatalf("%d bytes of %v, client %d is %v", len(packet), from, who, clients[who].LocalAddr())
				}
				if packet[1]%3 != 0 {
					b.Reply(i, copy(b.Room(), append([]byte{0xff}, packet...)))
				}
			}
			diff.MustEqual(t, 0, b.Flush(), "lost replies")
		}
		for i, c := range clients {
			for j := range 15 {
				if j%3 == 0 {
					continue
				}
				var got [PacketBytes]byte
				n, err := c.Read(got[:])
				if want := append([]byte{0xff}, bytes.Repeat([]byte{byte(i), byte(j)}, 6+100*j)...); err != nil || !bytes.Equal(got[:n], want) {
					t.Fatalf("client %d got %d bytes instead of its reply %d: %v", i, n, j, err)
				}
			}
		}
	}
}

func TestLongPacketIsCutAndNoOther(t *testing.T) {
	b, server := readerOn(t, "127.0.0.1:0")
	c := clientOf(t, server)
	for _, n := range []int{PacketBytes + 1, 0, 7, 60_000, PacketBytes} {
		if _, err := c.Write(bytes.Repeat([]byte{byte(n)}, n)); err != nil {
			t.Fatal(err)
		}
	}
	var lengths []int
	for len(lengths) < 5 {
		n, err := receive(b)
		fatal.If(t, err)
		for i := range n {
			packet, _ := b.Packet(i)
			lengths = append(lengths, len(packet))
		}
	}
	for i, want := range []int{PacketBytes, 0, 7, PacketBytes, PacketBytes} {
		diff.Equal(t, want, lengths[i], "bytes of packet", i)
	}
}

// TestReplyThatCannotBeSentCostsNoOther: the kernel refuses one of three.
func TestReplyThatCannotBeSentCostsNoOther(t *testing.T) {
	b, server := readerOn(t, "127.0.0.1:0")
	c := clientOf(t, server)
	for i := range 3 {
		if _, err := c.Write([]byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		if n, err := receive(b); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if i == 1 {
			b.in[0].header.Namelen = 1 // no address is as short
		}
		b.Reply(0, copy(b.Room(), []byte{byte(i)}))
	}
	diff.Equal(t, 1, b.Flush(), "lost replies")
	for _, want := range []byte{0, 2} {
		var got [16]byte
		if n, err := c.Read(got[:]); n != 1 || err != nil || got[0] != want {
			t.Errorf("got %x, %v, want %x", got[:n], err, want)
		}
	}
}

func TestClosedSocketEndsTheReader(t *testing.T) {
	b, server := readerOn(t, "127.0.0.1:0")
	if _, err := clientOf(t, server).Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if n, err := receive(b); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	_ = server.SetReadDeadline(time.Now())
	if _, err := receive(b); err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a deadline does not end it: %v", err)
	}
	_ = server.Close()
	if _, err := receive(b); !errors.Is(err, net.ErrClosed) {
		t.Errorf("received from a closed socket: %v", err)
	}
	b.Reply(0, 1)
	b.Reply(0, 1)
	diff.Equal(t, 2, b.Flush(), "lost of 2 replies")
	diff.Equal(t, 0, b.Flush(), "more that were lost")
}

// counted counts the calls for packets.
type counted struct {
	syscall.RawConn
	calls int
}

func (c *counted) Read(f func(fd uintptr) bool) error {
	return c.RawConn.Read(func(fd uintptr) bool {
		c.calls++
		return f(fd)
	})
}

// TestReaderCallsOnceForEachPacket that comes alone: no further call finds nothing.
func TestReaderCallsOnceForEachPacket(t *testing.T) {
	const packets = 50
	b, server := readerOn(t, "127.0.0.1:0")
	calls, c := &counted{RawConn: b.conn}, clientOf(t, server)
	b.conn = calls
	done := make(chan error)
	go func() {
		taken := 0
		done <- b.Receive(func(n int) bool {
			for i := range n {
				packet, _ := b.Packet(i)
				b.Reply(i, copy(b.Room(), packet))
			}
			b.Flush()
			taken += n
			return taken < packets
		})
	}()
	for range packets {
		if _, err := c.Write([]byte("0123456789ab")); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 512)); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; err != nil || calls.calls > packets*3/2 {
		t.Errorf("%d calls for %d packets, %v", calls.calls, packets, err)
	}
}

func TestReaderAllocatesNothing(t *testing.T) {
	b, server := readerOn(t, "127.0.0.1:0")
	c := clientOf(t, server)
	query, reply := []byte("0123456789ab"), make([]byte, 512)
	got := 0
	take := func(packets int) bool {
		got = packets
		return false
	}
	if n := testing.AllocsPerRun(200, func() {
		_, _ = c.Write(query)
		if err := b.Receive(take); got != 1 || err != nil {
			t.Fatal(got, err)
		}
		packet, from := b.Packet(0)
		if !from.IsValid() {
			t.Fatal("from nowhere")
		}
		b.Reply(0, copy(b.Room(), packet))
		b.Flush()
		_, _ = c.Read(reply)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
