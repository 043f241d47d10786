package mmsg

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// work counts what ReplyQueues call done with.
type work struct{ sent, lost atomic.Int64 }

func (w *work) done(packets, lost int) {
	w.sent.Add(int64(packets))
	w.lost.Add(int64(lost))
}

func socket(t *testing.T) (*net.UDPConn, syscall.RawConn) {
	t.Helper()
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	fatal.If(t, err)
	t.Cleanup(func() { _ = c.Close() })
	raw, err := c.SyscallConn()
	fatal.If(t, err)
	return c, raw
}

// queues are two sockets' queues, and where their packets arrive.
type queues struct {
	all   ReplyQueues
	list  [2]*ReplyQueue
	conns [2]*net.UDPConn
	work  work
	sink  *net.UDPConn
	to    netip.AddrPort
}

func newQueues(t *testing.T) *queues {
	t.Helper()
	q := &queues{}
	for i := range q.list {
		c, raw := socket(t)
		q.conns[i], q.list[i] = c, q.all.New(raw, q.work.done)
	}
	q.sink, _ = socket(t)
	_ = q.sink.SetReadBuffer(4 << 20)
	q.to = q.sink.LocalAddr().(*net.UDPAddr).AddrPort()
	return q
}

// count reads so many numbers off the sink and tells which came.
func count(t *testing.T, sink *net.UDPConn, want int) map[uint32]int {
	t.Helper()
	got := map[uint32]int{}
	var buf [64]byte
	_ = sink.SetReadDeadline(time.Now().Add(time.Minute))
	for range want {
		n, err := sink.Read(buf[:])
		fatal.If(t, err, "after", len(got), "replies")
		got[binary.BigEndian.Uint32(buf[:n])]++
	}
	return got
}

// TestEachReplyLeavesOnce: with concurrent Put and Send each packet leaves once,
// complete.
func TestEachReplyLeavesOnce(t *testing.T) {
	q := newQueues(t)
	const writers, each = 8, 100
	var wg sync.WaitGroup
	for k := range writers {
		wg.Go(func() {
			for i := range each {
				packet := binary.BigEndian.AppendUint32(nil, uint32(k*each+i))
				if !q.list[(k+i)%2].Put(packet, q.to) {
					t.Error("it is full")
				}
				clear(packet) // it was lent
				if i%7 == 6 || i == each-1 {
					q.all.Send()
				}
			}
		})
	}
	wg.Wait()
	got := count(t, q.sink, writers*each)
	for i := range uint32(writers * each) {
		diff.Equal(t, 1, got[i], "times that a reply came:", i)
	}
	if sent, lost := q.work.sent.Load(), q.work.lost.Load(); sent != writers*each || lost != 0 || len(q.all.list) != 0 {
		t.Errorf("%d sent, %d lost, %d listed", sent, lost, len(q.all.list))
	}
	for _, o := range q.list {
		diff.Equal(t, 0, len(o.queued.to)+len(o.batch.to), "packets left")
	}
}

func TestReplyQueueIsBounded(t *testing.T) {
	q := newQueues(t)
	const beyond = 50
	for i := range maxQueue + beyond {
		diff.MustEqual(t, i < maxQueue, q.list[0].Put(binary.BigEndian.AppendUint32(nil, uint32(i)), q.to), "packet", i)
	}
	go q.all.Send()
	for i, n := range count(t, q.sink, maxQueue) {
		if n != 1 || i >= maxQueue {
			t.Errorf("reply %d came %d times", i, n)
		}
	}
}

func TestRepliesOfAClosedSocketAreLost(t *testing.T) {
	q := newQueues(t)
	for range 40 {
		q.list[0].Put([]byte("late"), q.to)
	}
	_ = q.conns[0].Close()
	q.all.Send()
	if sent, lost := q.work.sent.Load(), q.work.lost.Load(); sent != 40 || lost != 40 {
		t.Errorf("%d sent, %d lost", sent, lost)
	}
}

// TestReplyQueueDoesNotWait for room in one socket's buffer.
func TestReplyQueueDoesNotWait(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK, 0)
	fatal.If(t, err)
	defer func() { _ = unix.Close(fds[1]) }()
	f := os.NewFile(uintptr(fds[0]), "full")
	defer f.Close()
	conn, err := f.SyscallConn()
	fatal.If(t, err)
	if !newQueues(t).list[0].writer.noWait {
		t.Error("the queue waits")
	}
	w := batchWriter{noWait: true}
	packet := make([]byte, 4096)
	done := make(chan int)
	go func() {
		lost := 0
		for range 40 { // more than the kernel takes without a reader
			for w.count < batchSize {
				w.add(packet, nil, 0)
			}
			w.send(conn, func(_ int, err error) {
				diff.Is(t, syscall.EAGAIN, err, "lost to")
				lost++
			})
		}
		done <- lost
	}()
	select {
	case lost := <-done:
		if lost == 0 || lost == 40*batchSize || w.count != 0 {
			t.Errorf("%d of %d lost", lost, 40*batchSize)
		}
	case <-time.After(time.Minute):
		t.Fatal("it waits for room")
	}
}
