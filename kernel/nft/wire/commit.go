package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/namegate/namegate/kernel/nfattr"
	"golang.org/x/sys/unix"
)

// MaxReplies is how many replies the socket's receive buffer has room for until a transaction
// ends: each refused message has one of less than 1 KiB.
const MaxReplies = 512

// sendBuffer is the least room for a transaction.
const sendBuffer = 384 << 10

var errSilent = errors.New("the kernel did not say whether the change was made")

// Refusal is a message of a transaction that the kernel refused.
type Refusal struct {
	Message int // from 0
	Err     error
}

// Commit makes the changes: all of them, or none. The error names the object of the first
// change that is refused; other errors are of no single change. Only the last message asks for
// a reply, which the kernel queues after it committed the transaction, as it does with errors,
// before the write returns.
func (m *Batch) Commit() ([]Refusal, error) {
	return m.send(func() { m.b, _ = appendControl(m.b, unix.NFNL_MSG_BATCH_END, uint32(len(m.about)+1)) })
}

// Check tells which changes the kernel would refuse, and makes none: a transaction without an
// end.
func (m *Batch) Check() ([]Refusal, error) { return m.send(func() {}) }

func (m *Batch) send(end func()) ([]Refusal, error) {
	fd, err := open(max(sendBuffer, len(m.b)+len(m.b)/2))
	if err != nil {
		return nil, err
	}
	defer nfattr.CloseLater(func() { _ = unix.Close(fd) })
	flags := m.b[m.last+6:]
	binary.NativeEndian.PutUint16(flags, binary.NativeEndian.Uint16(flags)|unix.NLM_F_ACK)
	end()
	if _, err := unix.Write(fd, m.b); err != nil {
		return nil, err
	}
	refused, err := replies(fd, len(m.about))
	if len(refused) > 0 {
		err = fmt.Errorf("%s: %w", m.about[refused[0].Message], refused[0].Err)
	}
	return refused, err
}

// open opens a socket to the kernel's nftables that takes short errors.
func open(sendBuffer int) (int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return -1, err
	}
	err = errors.Join(
		// Connected to the kernel, the socket receives from no other sender.
		unix.Connect(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBuffer),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, MaxReplies<<10))
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// appendControl appends the message that begins or ends a transaction.
func appendControl(b []byte, typ uint16, seq uint32) ([]byte, int) {
	b, begin := nfattr.AppendHeader(b, typ, 0, seq)
	b[begin+unix.SizeofNlMsghdr] = unix.NFPROTO_UNSPEC
	binary.BigEndian.PutUint16(b[begin+unix.SizeofNlMsghdr+2:], unix.NFNL_SUBSYS_NFTABLES)
	nfattr.EndMessage(b, begin)
	return b, begin
}

// replies reads what became of a transaction of messages, which are numbered from 1.
func replies(fd, messages int) (refused []Refusal, err error) {
	done := false
	var in [4096]byte // replies are 36 bytes: NETLINK_CAP_ACK
	for {
		n, failed := unix.Read(fd, in[:])
		if failed == unix.EINTR {
			continue
		}
		if failed != nil {
			break // after the last reply, or after replies that were lost
		}
		if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(in[4:]) != unix.NLMSG_ERROR {
			continue
		}
		seq, errno := int(binary.NativeEndian.Uint32(in[8:])), syscall.Errno(-int32(binary.NativeEndian.Uint32(in[unix.SizeofNlMsghdr:])))
		done = done || seq == messages
		if errno == 0 {
			continue
		}
		err = errno
		if seq > 0 && seq <= messages {
			refused = append(refused, Refusal{seq - 1, errno})
		}
	}
	if err == nil && !done {
		return nil, errSilent
	}
	return refused, err
}
