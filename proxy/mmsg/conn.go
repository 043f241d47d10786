package mmsg

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Conn is a UDP socket of which the runtime's poller waits for packets alone. Of a net.UDPConn it
// also waits for room, so that each packet that has left wakes one of its threads for nothing. It
// is the socket's syscall.RawConn, whose Write does not wait for room either, and has one reader.
type Conn struct {
	syscall.RawConn              // of socket
	opened          *net.UDPConn // closed; it has the address
	socket          *os.File     // blocking, and so in no poller
	arrivals        *os.File     // an epoll instance, readable while the socket is
	waiting         syscall.RawConn
	read            func(fd uintptr) (done bool) // of the Read that is under way
	readSocket      func(uintptr) (done bool)    // read of the socket, made once
}

// NewConn takes over the socket of c, which it closes.
func NewConn(c *net.UDPConn) (*Conn, error) {
	defer c.Close()
	fd, err := -1, net.ErrClosed
	if raw, failed := c.SyscallConn(); failed == nil {
		_ = raw.Control(func(own uintptr) { fd, err = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) })
	}
	if err != nil {
		return nil, err
	}
	_ = unix.SetNonblock(fd, false) // os.NewFile puts a file that does not block into the poller
	n := &Conn{opened: c, socket: os.NewFile(uintptr(fd), "udp")}
	n.RawConn, _ = n.socket.SyscallConn()
	n.readSocket = func(uintptr) bool { return n.read(uintptr(fd)) }
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN})
	}
	_ = unix.SetNonblock(epoll, true)
	n.arrivals = os.NewFile(uintptr(epoll), "epoll") // nil for none
	n.waiting, _ = n.arrivals.SyscallConn()
	if err != nil {
		_, _ = n.arrivals.Close(), n.socket.Close()
		return nil, err
	}
	return n, nil
}

// Read implements syscall.RawConn.
func (c *Conn) Read(f func(fd uintptr) (done bool)) error {
	c.read = f
	if err := c.waiting.Read(c.readSocket); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return net.ErrClosed
}

// Send sends a packet to the socket's peer.
func (c *Conn) Send(packet []byte) error {
	_, err := c.socket.Write(packet)
	return err
}

// SetReadDeadline ends Read at a time.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.arrivals.SetReadDeadline(t) }

// Close ends Read, and then closes the socket.
func (c *Conn) Close() error {
	if err := c.arrivals.Close(); err != nil {
		return err
	}
	return c.socket.Close()
}

// LocalAddr returns the socket's address.
func (c *Conn) LocalAddr() net.Addr { return c.opened.LocalAddr() }
