package mmsg

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// batchWriter sends packets out of one UDP socket, up to batchSize with one call. It
// belongs to one goroutine and allocates nothing after its first send.
type batchWriter struct {
	messages [batchSize]message
	vec      [batchSize]unix.Iovec
	count    int
	noWait   bool // it does not wait for room in the socket's buffer
	sent     int
	err      syscall.Errno
	write    func(fd uintptr) bool // sendNow, made once
}

// add queues a packet, one of up to batchSize, which must not change until send. name is its destination, nil
// on a connected socket.
func (w *batchWriter) add(packet []byte, name unsafe.Pointer, nameBytes uint32) {
	i := w.count
	w.vec[i].Base = unsafe.SliceData(packet)
	w.vec[i].SetLen(len(packet))
	w.messages[i].header = unix.Msghdr{Name: (*byte)(name), Namelen: nameBytes, Iov: &w.vec[i]}
	w.messages[i].header.SetIovlen(1)
	w.count++
}

// send sends the queued packets. It calls failed with the number of each packet that
// the kernel refuses, counted from the first that was added.
func (w *batchWriter) send(conn syscall.RawConn, failed func(i int, err error)) {
	if w.write == nil {
		w.write = w.sendNow
	}
	defer func() { w.count = 0 }() // also after a panic: nothing is sent twice
	for w.sent = 0; w.sent < w.count; {
		w.err = 0
		if err := conn.Write(w.write); err != nil {
			for ; w.sent < w.count; w.sent++ {
				failed(w.sent, err)
			}
		}
		if w.err != 0 {
			failed(w.sent, w.err)
			w.sent++ // the others may have other destinations
		}
	}
}

func (w *batchWriter) sendNow(fd uintptr) bool {
	n, errno := multi(unix.SYS_SENDMMSG, fd, &w.messages[w.sent], w.count-w.sent)
	switch errno {
	case 0:
		w.sent += n
	case unix.EAGAIN:
		if !w.noWait {
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, -1)
			return true
		}
		w.err = errno
	case unix.EINTR:
	default:
		w.err = errno
	}
	return true
}
