package proxy

import (
	"net"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// inletMost is how many replies come out of the kernel with one call.
const inletMost = 8

// arrival is struct mmsghdr of recvmmsg(2).
type arrival struct {
	header unix.Msghdr
	length uint32
	_      [4]byte
}

// inlet is what replies are read into. Lines share them: a line has one only while
// there is something to read.
type inlet struct {
	arrivals [inletMost]arrival
	vec      [inletMost]unix.Iovec
	packets  [inletMost][replyBuffer]byte
}

var inlets = sync.Pool{New: func() any {
	in := new(inlet)
	for i := range inletMost {
		in.vec[i].Base = &in.packets[i][0]
		in.vec[i].SetLen(replyBuffer)
		in.arrivals[i].header.Iov = &in.vec[i]
		in.arrivals[i].header.SetIovlen(1)
	}
	return in
}}

// receive reads what is there and returns how many replies that is.
func (in *inlet) receive(fd uintptr) (int, syscall.Errno) {
	n, _, errno := syscall.Syscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&in.arrivals[0])), inletMost, unix.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}

// read hands the replies out until the line is closed or refused.
func (l *line) read() {
	err := l.receive()
	l.fail(err)
	_ = l.conn.Close()
}

// receive stays within one read of the socket for as long as that lives, so that
// between two batches there is no call that finds nothing.
func (l *line) receive() error {
	raw, err := l.conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Read(func(fd uintptr) (done bool) {
		in := inlets.Get().(*inlet)
		defer inlets.Put(in)
		for !l.shut.Load() {
			n, errno := in.receive(fd)
			switch errno {
			case 0:
			case unix.EINTR:
				continue
			case unix.EAGAIN:
				return false
			default:
				failed = &net.OpError{Op: "read", Net: "udp", Source: l.conn.LocalAddr(), Addr: l.conn.RemoteAddr(), Err: errno}
				return true
			}
			now := l.u.now()
			for i := 0; i < n && !l.shut.Load(); i++ {
				l.take(in.packets[i][:min(in.arrivals[i].length, replyBuffer)], now)
			}
			if n < inletMost {
				return false // what comes from now on wakes the poller again
			}
		}
		return true
	})
	if failed != nil {
		return failed
	}
	if err == nil {
		err = net.ErrClosed
	}
	return err
}
