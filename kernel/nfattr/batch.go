package nfattr

import (
	"cmp"
	"encoding/binary"
	"errors"
	"io"

	"golang.org/x/sys/unix"
)

// sendBuffer is the least room for a batch.
const sendBuffer = 384 << 10

// MaxReplies is how many replies the receive buffer has room for until a batch ends: each
// refused message has one of less than 1 KiB.
const MaxReplies = 512

var errSilent = errors.New("the kernel did not say whether the change was made")

// Reply is what the kernel says about a message of a batch: nil if it is done, else a
// syscall.Errno.
type Reply struct {
	Message int // from 0
	Err     error
}

// Send sends a batch, and returns the replies to its messages. last is the message that asks
// for a reply; each that the kernel refuses has one too. The kernel replies before the write
// returns. A reply to the first message, which begins the batch, refuses all of it. An error
// means that it is not known which messages are done.
func (s *Socket) Send(batch []byte, last int) ([]Reply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.makeRoom(len(batch) + len(batch)/2); err != nil {
		return nil, err
	}
	first, messages, err := s.number(batch)
	if err != nil {
		return nil, err
	}
	if _, err := unix.Write(s.fd, batch); err != nil {
		return nil, err
	}
	var out []Reply
	var lost error
	answered := false
	for {
		n, _, err := unix.Recvfrom(s.fd, s.in, unix.MSG_DONTWAIT)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN && (lost != nil || !answered):
			return nil, cmp.Or(lost, errSilent)
		case err == unix.EAGAIN:
			return out, nil
		case err == unix.ENOBUFS: // replies were lost; the others must not take the room of the next
			lost = err
			continue
		case err != nil:
			return nil, err
		}
		b := s.in[:n]
		if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(b[4:]) != unix.NLMSG_ERROR {
			continue
		}
		at := binary.NativeEndian.Uint32(b[8:]) - first
		if at >= uint32(messages) {
			continue // of an earlier batch
		}
		answered = answered || at == 0 || int(at) == last
		out = append(out, Reply{int(at), ended(b[unix.SizeofNlMsghdr:])})
	}
}

// makeRoom has the socket take batches of a size, and the replies to one.
func (s *Socket) makeRoom(size int) error {
	if size = max(size, sendBuffer); size <= s.room {
		return nil
	}
	err := errors.Join(
		unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, size),
		unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, MaxReplies<<10))
	if err == nil {
		s.room = size
	}
	return err
}

// number numbers the messages of a batch behind those that were sent before, so that no
// earlier reply is taken for one of theirs.
func (s *Socket) number(batch []byte) (first uint32, messages int, err error) {
	first = s.seq + 1
	for b := batch; len(b) > 0; messages++ {
		length := 0
		if len(b) >= unix.SizeofNlMsghdr {
			length = int(binary.NativeEndian.Uint32(b))
		}
		if length < unix.SizeofNlMsghdr || length > len(b) {
			return 0, 0, io.ErrUnexpectedEOF
		}
		s.seq++
		binary.NativeEndian.PutUint32(b[8:], s.seq)
		b = b[min((length+3)&^3, len(b)):]
	}
	return first, messages, nil
}
