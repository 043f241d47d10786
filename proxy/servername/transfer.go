package servername

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

const (
	// chunk is how much is moved at a time, and what a pipe has room for.
	chunk = 512 << 10
	// idlePipes bounds the pipes that are kept for the next use.
	idlePipes = 64
)

// pipe is a kernel buffer between two sockets. A direction has one only while bytes are in it: io.Copy
// keeps one, and two descriptors, for each direction that waits.
type pipe struct{ r, w int }

var pipes = make(chan pipe, idlePipes)

func takePipe() (pipe, error) {
	select {
	case p := <-pipes:
		return p, nil
	default:
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return pipe{}, fmt.Errorf("open a pipe: %w", err)
	}
	_, _ = unix.FcntlInt(uintptr(fds[1]), unix.F_SETPIPE_SZ, chunk) // with less room it is slower
	return pipe{fds[0], fds[1]}, nil
}

// give gives back a pipe, which is empty.
func (p pipe) give() {
	select {
	case pipes <- p:
	default:
		p.close()
	}
}

func (p pipe) close() { _, _ = unix.Close(p.r), unix.Close(p.w) }

// transfer moves what src sends to dst until src ends. It returns nil at an orderly end.
func transfer(dst, src *net.TCPConn) error {
	in, err := src.SyscallConn()
	if err != nil {
		return err
	}
	out, err := dst.SyscallConn()
	if err != nil {
		return err
	}
	for {
		p, n, urgent, err := receive(in.Read)
		switch {
		case err != nil:
			return err
		case urgent:
			err = sendUrgent(out.Write, byte(n))
		case n == 0:
			return nil
		default:
			err = send(out.Write, p, n)
		}
		if err != nil {
			return err
		}
	}
}

// await runs f until it is true, each time its socket is ready.
type await func(f func(fd uintptr) bool) error

// receive moves what has arrived into a pipe; n is 0 at the end. Urgent data stops the kernel from that: n is then the urgent byte.
func receive(ready await) (p pipe, n int, urgent bool, err error) {
	waited := ready(func(fd uintptr) bool {
		if p, err = takePipe(); err != nil {
			return true
		}
		n, err = splice(int(fd), p.w, chunk)
		if n > 0 {
			return true
		}
		p.give()
		if !errors.Is(err, unix.EAGAIN) {
			return true
		}
		if mark, e := unix.IoctlGetInt(int(fd), unix.SIOCATMARK); e != nil || mark == 0 {
			return false
		}
		var b [1]byte
		var got int
		if got, _, err = unix.Recvfrom(int(fd), b[:], 0); errors.Is(err, unix.EAGAIN) {
			return false
		}
		n, urgent = int(b[0]), got == 1
		return true
	})
	return p, n, urgent, errors.Join(waited, err)
}

// send moves n bytes out of a pipe.
func send(ready await, p pipe, n int) error {
	for n > 0 {
		var moved int
		var err error
		waited := ready(func(fd uintptr) bool {
			moved, err = splice(p.r, int(fd), n)
			return !errors.Is(err, unix.EAGAIN)
		})
		if err := errors.Join(waited, err); err != nil {
			p.close() // with what is in it
			return err
		}
		n -= moved
	}
	p.give()
	return nil
}

func sendUrgent(ready await, b byte) error {
	var err error
	waited := ready(func(fd uintptr) bool {
		_, err = unix.SendmsgN(int(fd), []byte{b}, nil, nil, unix.MSG_OOB|unix.MSG_NOSIGNAL)
		return !errors.Is(err, unix.EAGAIN)
	})
	return errors.Join(waited, err)
}

func splice(from, to, n int) (int, error) {
	for {
		moved, err := unix.Splice(from, nil, to, nil, n, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
		if !errors.Is(err, unix.EINTR) {
			return int(moved), err
		}
	}
}
