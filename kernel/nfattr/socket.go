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

// Socket is a socket of netfilter for listings, requests and batches, one at a time. They are
// read into one buffer: listings of 100,000 connections or 10,000 sets are asked for again and
// again.
type Socket struct {
	mu  sync.Mutex
	fd  int
	seq uint32 // of the last message
	out []byte
	in  []byte
	// room is the size of the send buffer that was asked for.
	room int
	// changed: the objects of the last listing changed during it.
	changed bool
}

// ErrChanged is the error of a whole listing whose objects changed during it, so that some may be missing or be there
// twice. The kernel tells it for objects of nftables.
var ErrChanged = errors.New("the objects changed during the listing")

// OpenSocket opens a socket in the calling thread's network namespace.
func OpenSocket() (*Socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open netfilter netlink socket: %w", err)
	}
	err = errors.Join(
		// Connected to the kernel, the socket receives from no other sender.
		unix.Connect(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: listPatience}))
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("prepare netfilter netlink socket: %w", err)
	}
	return &Socket{fd: fd, in: make([]byte, listBuffer)}, nil
}

// Close closes the socket, after the request that is under way. A nil Socket is closed.
func (s *Socket) Close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	unix.Close(s.fd)
	s.fd = -1
}

// List asks for the listing of a subsystem and command (typ) in a family (AF_INET,
// AF_INET6), with the attributes that ask appends, and calls each with every message
// behind its netlink header. Neither may use the Socket, and messages are only valid
// until each returns. An error of the kernel's is a syscall.Errno.
func (s *Socket) List(typ uint16, family uint8, ask func([]byte) []byte, each func(msg []byte)) error {
	return s.exchange(unix.NLM_F_DUMP, typ, family, ask, each)
}

// Get is List for one object. The kernel writes the first message of a listing before it
// sees a read of it, for a read as long as the longest before: in a new socket's listing
// 4 KiB, after a Get as much as all others.
func (s *Socket) Get(typ uint16, family uint8, ask func([]byte) []byte, each func(msg []byte)) error {
	return s.exchange(unix.NLM_F_ACK, typ, family, ask, each)
}

// Change is Get with flags, for a request that is answered by an acknowledgement alone.
func (s *Socket) Change(typ, flags uint16, family uint8, ask func([]byte) []byte) error {
	return s.exchange(unix.NLM_F_ACK|flags, typ, family, ask, func([]byte) {})
}

func (s *Socket) exchange(flags, typ uint16, family uint8, ask func([]byte) []byte, each func(msg []byte)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seq++
	b, begin := AppendHeader(s.out[:0], typ, flags, s.seq)
	b[begin+unix.SizeofNlMsghdr] = family
	b = ask(b)
	EndMessage(b, begin)
	s.out, s.changed = b, false
	if err := unix.Send(s.fd, b, 0); err != nil {
		return err
	}
	for {
		n, err := unix.Read(s.fd, s.in)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if done, err := s.read(s.in[:n], each); done || err != nil {
			return err
		}
	}
}

// read parses the messages of a listing, and tells whether the listing is complete.
// Messages of an earlier, interrupted listing are skipped.
func (s *Socket) read(b []byte, each func(msg []byte)) (done bool, err error) {
	for len(b) > 0 {
		length := 0
		if len(b) >= unix.SizeofNlMsghdr {
			length = int(binary.NativeEndian.Uint32(b))
		}
		if length < unix.SizeofNlMsghdr || length > len(b) {
			return true, io.ErrUnexpectedEOF
		}
		body, typ := b[unix.SizeofNlMsghdr:length], binary.NativeEndian.Uint16(b[4:])
		if binary.NativeEndian.Uint32(b[8:]) == s.seq {
			s.changed = s.changed || binary.NativeEndian.Uint16(b[6:])&unix.NLM_F_DUMP_INTR != 0
			switch {
			case typ == unix.NLMSG_ERROR || typ == unix.NLMSG_DONE:
				if len(body) < 4 {
					return true, io.ErrUnexpectedEOF
				}
				if err := ended(body); err != nil || !s.changed {
					return true, err
				}
				return true, ErrChanged
			case len(body) >= HeaderLen:
				each(body)
			}
		}
		b = b[min((length+3)&^3, len(b)):]
	}
	return false, nil
}

// ended reads the last message of a listing, of at least four bytes.
func ended(body []byte) error {
	if errno := -int32(binary.NativeEndian.Uint32(body)); errno != 0 {
		return syscall.Errno(errno)
	}
	return nil
}
