package mmsg

import (
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// receiveSize is how many packets come from a connected socket with one call.
const receiveSize = 8

// ReceiveBatch is packets that came from a connected socket with one call. Sockets
// share the batches: a socket has one only while there is something to read.
type ReceiveBatch struct {
	count    int
	messages [receiveSize]message
	vec      [receiveSize]unix.Iovec
	packets  [receiveSize][PacketBytes]byte
}

var receiveBatches = sync.Pool{New: func() any {
	b := new(ReceiveBatch)
	for i := range receiveSize {
		b.vec[i].Base = &b.packets[i][0]
		b.vec[i].SetLen(PacketBytes)
		b.messages[i].header.Iov = &b.vec[i]
		b.messages[i].header.SetIovlen(1)
	}
	return b
}}

// Len returns how many packets there are.
func (b *ReceiveBatch) Len() int { return b.count }

// Packet returns packet i.
func (b *ReceiveBatch) Packet(i int) []byte {
	return b.packets[i][:min(b.messages[i].length, PacketBytes)]
}

// Receive calls take with the packets of a connected socket until take returns false
// or the socket fails, and returns why it ended: net.ErrClosed after take. The batch is
// valid until take returns.
//
// It stays within one read of the socket for as long as that lives, so that between
// two batches there is no call that finds nothing.
func Receive(conn *Conn, take func(b *ReceiveBatch) (goOn bool)) error {
	var failed error
	err := conn.Read(func(fd uintptr) (done bool) {
		b := receiveBatches.Get().(*ReceiveBatch)
		defer receiveBatches.Put(b)
		for {
			var errno syscall.Errno
			b.count, errno = multi(unix.SYS_RECVMMSG, fd, &b.messages[0], receiveSize)
			switch errno {
			case 0:
			case unix.EINTR:
				continue
			case unix.EAGAIN:
				return false
			default:
				failed = &net.OpError{Op: "read", Net: "udp", Source: conn.LocalAddr(), Err: errno}
				return true
			}
			if !take(b) {
				return true
			}
			if b.count < receiveSize {
				return false // a later packet wakes the poller again
			}
		}
	})
	if failed != nil {
		return failed
	}
	if err == nil {
		err = net.ErrClosed
	}
	return err
}
