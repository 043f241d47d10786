package mmsg

import (
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Reader reads packets off an unconnected UDP socket and sends replies to their
// sources. It belongs to one goroutine.
type Reader struct {
	conn syscall.RawConn
	take func(packets int) (goOn bool)
	goOn bool
	err  error
	lost int
	read func(fd uintptr) bool // receive, made once
	miss func(int, error)      // made once

	in      [batchSize]message
	from    [batchSize]unix.RawSockaddrInet6
	vec     [batchSize]unix.Iovec
	packets [batchSize][PacketBytes]byte
	out     batchWriter
	replies [batchSize][PacketBytes]byte
}

// NewReader returns a reader of a socket.
func NewReader(conn syscall.RawConn) *Reader {
	r := &Reader{conn: conn}
	for i := range batchSize {
		r.vec[i].Base = &r.packets[i][0]
		r.vec[i].SetLen(PacketBytes)
		r.in[i].header.Iov = &r.vec[i]
		r.in[i].header.Name = (*byte)(unsafe.Pointer(&r.from[i]))
		r.in[i].header.SetIovlen(1)
	}
	r.read = r.receive
	r.miss = func(int, error) { r.lost++ }
	return r
}

// Receive calls take with the number of packets that came together, until take returns false or the
// socket fails, and returns why it failed. The packets and their replies are valid until take returns.
//
// After a batch with room left it stays within its read of the socket, so that no call finds nothing.
func (r *Reader) Receive(take func(packets int) (goOn bool)) error {
	r.take, r.err = take, nil
	for r.goOn = true; r.goOn && r.err == nil; {
		if err := r.conn.Read(r.read); err != nil {
			return err
		}
	}
	return r.err
}

func (r *Reader) receive(fd uintptr) (done bool) {
	for i := range batchSize {
		r.in[i].header.Namelen = unix.SizeofSockaddrInet6
	}
	n, errno := multi(unix.SYS_RECVMMSG, fd, &r.in[0], batchSize)
	switch errno {
	case 0:
		r.goOn = r.take(n)
		return !r.goOn || n == batchSize // else a later packet wakes the poller again
	case unix.EAGAIN:
		return false
	case unix.EINTR:
	default:
		r.err = errno
	}
	return true
}

// Packet returns packet i, and its source.
func (r *Reader) Packet(i int) ([]byte, netip.AddrPort) {
	return r.packets[i][:min(r.in[i].length, PacketBytes)], addrPort(&r.from[i])
}

// Room returns the buffer for the next reply.
func (r *Reader) Room() []byte { return r.replies[r.out.count][:] }

// Reply queues the first n bytes of Room for the source of packet i. Each packet has
// at most one reply.
func (r *Reader) Reply(i, n int) {
	h := &r.in[i].header
	r.out.add(r.Room()[:n], unsafe.Pointer(h.Name), h.Namelen)
}

// Flush sends the queued replies and returns how many the kernel refused.
func (r *Reader) Flush() (lost int) {
	r.lost = 0
	r.out.send(r.conn, r.miss)
	return r.lost
}
