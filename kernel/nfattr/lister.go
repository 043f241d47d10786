package nfattr

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// listPatience is how long, in seconds, the kernel may be silent in a listing.
	listPatience = 10
	// listBuffer is what one read takes: as much as the kernel writes at a time, which
	// netlink_dump of net/netlink/af_netlink.c bounds to 32 KiB.
	listBuffer = 32 << 10
)

// Lister is a socket for listings of netfilter, one at a time. They are read into one
// buffer: listings of 100,000 connections or 10,000 sets are asked for again and again.
type Lister struct {
	mu  sync.Mutex
	fd  int
	seq uint32
	out []byte
	in  []byte
}

// OpenLister opens a socket in the calling thread's network namespace.
func OpenLister() (*Lister, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open netfilter netlink socket: %w", err)
	}
	// Connected to the kernel, the socket receives from no other sender.
	err = errors.Join(
		unix.Connect(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: listPatience}))
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("prepare netfilter netlink socket: %w", err)
	}
	return &Lister{fd: fd, in: make([]byte, listBuffer)}, nil
}

// Close closes the socket, after the listing that is under way.
func (l *Lister) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	unix.Close(l.fd)
	l.fd = -1
}

// List asks for the listing of a subsystem and command (typ) in a family (AF_INET,
// AF_INET6), with the attributes that ask appends, and calls each with every message
// behind its netlink header. Neither may use the Lister, and messages are only valid
// until each returns. An error of the kernel's is a syscall.Errno.
func (l *Lister) List(typ uint16, family uint8, ask func([]byte) []byte, each func(msg []byte)) error {
	return l.exchange(unix.NLM_F_DUMP, typ, family, ask, each)
}

// Get is List for one object. The kernel writes the first message of a listing before it
// sees a read of it, for a read as long as the longest before: in a new socket's listing
// 4 KiB, after a Get as much as all others.
func (l *Lister) Get(typ uint16, family uint8, ask func([]byte) []byte, each func(msg []byte)) error {
	return l.exchange(unix.NLM_F_ACK, typ, family, ask, each)
}

func (l *Lister) exchange(flags, typ uint16, family uint8, ask func([]byte) []byte, each func(msg []byte)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	b, begin := AppendHeader(l.out[:0], typ, flags, l.seq)
	b[begin+unix.SizeofNlMsghdr] = family
	b = ask(b)
	EndMessage(b, begin)
	l.out = b
	if _, err := unix.Write(l.fd, b); err != nil {
		return err
	}
	for {
		n, err := unix.Read(l.fd, l.in)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if done, err := l.read(l.in[:n], each); done || err != nil {
			return err
		}
	}
}

// read parses the messages of a listing, and tells whether the listing is complete.
// Messages of an earlier, interrupted listing are skipped.
func (l *Lister) read(b []byte, each func(msg []byte)) (done bool, err error) {
	for len(b) > 0 {
		length := 0
		if len(b) >= unix.SizeofNlMsghdr {
			length = int(binary.NativeEndian.Uint32(b))
		}
		if length < unix.SizeofNlMsghdr || length > len(b) {
			return true, io.ErrUnexpectedEOF
		}
		body, typ := b[unix.SizeofNlMsghdr:length], binary.NativeEndian.Uint16(b[4:])
		switch {
		case binary.NativeEndian.Uint32(b[8:]) != l.seq:
		case typ == unix.NLMSG_ERROR || typ == unix.NLMSG_DONE:
			return true, ended(body)
		case len(body) >= HeaderLen:
			each(body)
		}
		b = b[min((length+3)&^3, len(b)):]
	}
	return false, nil
}

// ended reads the last message of a listing.
func ended(body []byte) error {
	if len(body) < 4 {
		return io.ErrUnexpectedEOF
	}
	if errno := -int32(binary.NativeEndian.Uint32(body)); errno != 0 {
		return syscall.Errno(errno)
	}
	return nil
}
