package proxy

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// boxes are two listeners' outboxes, and where their replies come out.
func boxes(t *testing.T) (s *Server, out []*outbox, sink *net.UDPConn, to netip.AddrPort) {
	s = newExpressLab(t, false).s
	for range 2 {
		l, err := s.bind(loopback)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(l.shut)
		out = append(out, l.out)
	}
	sink, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(loopback))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sink.Close() })
	_ = sink.SetReadBuffer(4 << 20)
	return s, out, sink, sink.LocalAddr().(*net.UDPAddr).AddrPort()
}

// count reads so many numbers off the sink and tells which came.
func count(t *testing.T, sink *net.UDPConn, want int) map[uint32]int {
	t.Helper()
	got := map[uint32]int{}
	var buf [64]byte
	_ = sink.SetReadDeadline(time.Now().Add(time.Minute))
	for range want {
		n, err := sink.Read(buf[:])
		if err != nil {
			t.Fatalf("after %d replies: %v", len(got), err)
		}
		got[binary.BigEndian.Uint32(buf[:n])]++
	}
	return got
}

// TestEachReplyLeavesOnce: whoever puts and flushes, each reply leaves once, whole,
// and its query counts as work until then.
func TestEachReplyLeavesOnce(t *testing.T) {
	s, out, sink, to := boxes(t)
	const writers, each = 8, 100
	var wg sync.WaitGroup
	for k := range writers {
		wg.Go(func() {
			for i := range each {
				o := out[(k+i)%2]
				wire := binary.BigEndian.AppendUint32(nil, uint32(k*each+i))
				o.put(wire, to)
				clear(wire) // it was lent
				if i%7 == 6 || i == each-1 {
					s.outboxes.flush()
				}
			}
		})
	}
	wg.Wait()
	got := count(t, sink, writers*each)
	for i := range uint32(writers * each) {
		if got[i] != 1 {
			t.Errorf("reply %d came %d times", i, got[i])
		}
	}
	for _, o := range out {
		o.l.work.Wait() // panics below zero
		if len(o.waiting.to)+len(o.parcel.to) != 0 {
			t.Error("something waits on")
		}
	}
	if n := s.Stats().RepliesLost; n != 0 || len(s.outboxes.list) != 0 {
		t.Errorf("%d lost, %d listed", n, len(s.outboxes.list))
	}
}

// TestOutboxIsBounded: beyond the bound replies leave at once.
func TestOutboxIsBounded(t *testing.T) {
	s, out, sink, to := boxes(t)
	const beyond = 50
	for i := range outboxMost + beyond {
		out[0].put(binary.BigEndian.AppendUint32(nil, uint32(i)), to)
	}
	if n := len(out[0].waiting.to); n != outboxMost {
		t.Errorf("%d wait", n)
	}
	for i, n := range count(t, sink, beyond) {
		if n != 1 || i < outboxMost {
			t.Errorf("reply %d came %d times, before the flush", i, n)
		}
	}
	go s.outboxes.flush()
	if n := len(count(t, sink, outboxMost)); n != outboxMost {
		t.Errorf("%d came", n)
	}
	out[0].l.work.Wait()
}

// TestRepliesOfAClosedSocketAreCounted: nobody waits for them.
func TestRepliesOfAClosedSocketAreCounted(t *testing.T) {
	s, out, _, to := boxes(t)
	for range 40 {
		out[0].put([]byte("late"), to)
	}
	out[0].l.shut()
	s.outboxes.flush()
	out[0].l.work.Wait()
	if n := s.Stats().RepliesLost; n != 40 {
		t.Errorf("%d lost", n)
	}
}

// TestHastyPostDoesNotWait: who tells of grants must not wait for one socket's room.
func TestHastyPostDoesNotWait(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fds[1]) }()
	f := os.NewFile(uintptr(fds[0]), "full")
	defer f.Close()
	conn, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_, boxed, _, _ := boxes(t)
	if !boxed[0].out.hasty {
		t.Error("the outbox waits")
	}
	o := outgoing{hasty: true}
	packet := make([]byte, 4096)
	done := make(chan int)
	go func() {
		lost := 0
		for range 40 { // more than the kernel takes without a reader
			for !o.full() {
				o.add(packet, nil, 0)
			}
			o.post(conn, func(_ int, err error) {
				if !errors.Is(err, syscall.EAGAIN) {
					t.Errorf("lost to %v", err)
				}
				lost++
			})
		}
		done <- lost
	}()
	select {
	case lost := <-done:
		if lost == 0 || lost == 40*batchMost || o.count != 0 {
			t.Errorf("%d of %d lost", lost, 40*batchMost)
		}
	case <-time.After(time.Minute):
		t.Fatal("it waits for room")
	}
}
