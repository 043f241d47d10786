package proxy

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// batchMost is how many packets cross between kernel and proxy in one call.
const batchMost = 32

// mmsg is struct mmsghdr of recvmmsg(2) and sendmmsg(2).
type mmsg struct {
	header unix.Msghdr
	length uint32
	_      [4]byte
}

// outgoing is packets on their way out of one UDP socket, many with one call. It
// belongs to one goroutine and allocates nothing after its first post.
type outgoing struct {
	messages [batchMost]mmsg
	vec      [batchMost]unix.Iovec
	count    int
	hasty    bool // it does not wait for room in the socket
	sent     int
	err      syscall.Errno
	now      func(fd uintptr) bool // sendNow, made once
}

// full tells whether post has to come before the next add.
func (o *outgoing) full() bool { return o.count == batchMost }

// add takes a packet, which must stay until post; name is whom to, nil on a socket
// that is connected.
func (o *outgoing) add(packet []byte, name unsafe.Pointer, nameBytes uint32) {
	i := o.count
	o.vec[i].Base = unsafe.SliceData(packet)
	o.vec[i].SetLen(len(packet))
	o.messages[i].header = unix.Msghdr{Name: (*byte)(name), Namelen: nameBytes, Iov: &o.vec[i]}
	o.messages[i].header.SetIovlen(1)
	o.count++
}

// post sends what was added. Of each packet that the kernel does not take it tells
// failed the number, counted from the first that was added.
func (o *outgoing) post(conn syscall.RawConn, failed func(i int, err error)) {
	if o.now == nil {
		o.now = o.sendNow
	}
	defer func() { o.count = 0 }() // also after a fault: nothing is sent twice
	for o.sent = 0; o.sent < o.count; {
		o.err = 0
		if err := conn.Write(o.now); err != nil {
			for ; o.sent < o.count; o.sent++ {
				failed(o.sent, err)
			}
		}
		if o.err != 0 {
			failed(o.sent, o.err)
			o.sent++ // the others may go elsewhere
		}
	}
}

func (o *outgoing) sendNow(fd uintptr) bool {
	n, errno := multi(unix.SYS_SENDMMSG, fd, &o.messages[o.sent], o.count-o.sent)
	switch errno {
	case 0:
		o.sent += n
	case unix.EAGAIN:
		if !o.hasty {
			return false
		}
		o.err = errno
	case unix.EINTR:
	default:
		o.err = errno
	}
	return true
}

func multi(call, fd uintptr, first *mmsg, count int) (int, syscall.Errno) {
	n, _, errno := syscall.Syscall6(call, fd, uintptr(unsafe.Pointer(first)), uintptr(count), unix.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}
