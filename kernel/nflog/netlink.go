package nflog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/namegate/namegate/kernel/nfattr"
	"golang.org/x/sys/unix"
)

// Commands, attributes and flags of linux/netfilter/nfnetlink_log.h.
const (
	msgPacket  = 0
	msgConfig  = 1
	cfgCommand = 1
	cfgMode    = 2
	cfgTimeout = 4
	cfgGather  = 5
	cmdBind    = 1
	copyPacket = 2
)

const (
	// copied is how many bytes of a packet are handed over: every header that is read.
	copied = 128
	// gather and gatherTime bound how many packets, and for how long in hundredths of
	// a second, the kernel gathers for one message.
	gather     = 16
	gatherTime = 5
	// socketBuffer is the kernel's room for packets that wait, in bytes.
	socketBuffer = 1 << 20
	// receiveBuffer holds the largest message that the kernel makes of a group.
	receiveBuffer = 64 << 10
	// patience is how long the kernel may take to answer.
	patience = 10 * time.Second
	// retry is how long it waits for a group that another program has.
	retry = time.Second
)

// Kernel is the Interface on the network namespace of the thread that opened it.
type Kernel struct {
	group uint16
	file  *os.File
	now   func() time.Time
	log   *slog.Logger
	lost  atomic.Uint64
}

var _ Interface = (*Kernel)(nil)

// Open opens a socket for a group in the calling thread's network namespace. The group
// is taken by Packets.
func Open(group uint16, log *slog.Logger) (*Kernel, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open a socket for NFLOG group %d: %w", group, err)
	}
	err = errors.Join(
		// Connected to the kernel, the socket receives from no other sender.
		unix.Connect(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, socketBuffer))
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("prepare the socket for NFLOG group %d: %w", group, err)
	}
	return &Kernel{group: group, file: os.NewFile(uintptr(fd), "nflog"), now: time.Now, log: log}, nil
}

// Close closes the socket, which Packets does when it returns.
func (k *Kernel) Close() { k.file.Close() }

// Lost implements Interface.
func (k *Kernel) Lost() uint64 { return k.lost.Load() }

// Packets implements Interface.
func (k *Kernel) Packets(ctx context.Context, each func(Packet)) error {
	defer k.file.Close() // the next agent may have the group
	if err := k.acquire(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	// A deadline that is over ends the read that waits.
	stop := context.AfterFunc(ctx, func() { _ = k.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	b := make([]byte, receiveBuffer)
	for {
		n, err := k.file.Read(b)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, syscall.ENOBUFS):
			k.lost.Add(1)
		case err != nil:
			return fmt.Errorf("read NFLOG group %d: %w", k.group, err)
		default:
			now := k.now()
			_ = messages(b[:n], func(typ uint16, body []byte) {
				if typ != unix.NFNL_SUBSYS_ULOG<<8|msgPacket || len(body) < nfattr.HeaderLen {
					return
				}
				if p, ok := parse(body[nfattr.HeaderLen:]); ok {
					p.Time = now
					each(p)
				}
			})
		}
	}
}

// acquire makes the group this socket's, as soon as no other program has it.
func (k *Kernel) acquire(ctx context.Context) error {
	for warned := false; ; {
		err := k.bind()
		if err == nil {
			return nil
		}
		// Some kernels return EPERM for a group of another socket.
		if !errors.Is(err, syscall.EBUSY) && !errors.Is(err, syscall.EPERM) {
			return fmt.Errorf("take NFLOG group %d: %w", k.group, err)
		}
		if !warned {
			k.log.Warn("denied connections are not logged until another program releases the NFLOG group", "group", k.group, "error", err)
			warned = true
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retry):
		}
	}
}

// bind takes the group and says how packets are to be handed over.
func (k *Kernel) bind() error {
	command := func(b []byte) []byte { return nfattr.AppendUint8(b, cfgCommand, cmdBind) }
	mode := func(b []byte) []byte {
		how := append(binary.BigEndian.AppendUint32(nil, copied), copyPacket, 0)
		b = nfattr.Append(b, cfgMode, how)
		b = appendNumber(b, cfgTimeout, gatherTime)
		return appendNumber(b, cfgGather, gather)
	}
	if err := k.configure(1, command); err != nil {
		return err
	}
	return errors.Join(k.configure(2, mode), k.file.SetReadDeadline(time.Time{}))
}

// appendNumber appends a number in network order without the flag that says so, which
// this subsystem does not know.
func appendNumber(b []byte, typ int, v uint32) []byte {
	return nfattr.Append(b, typ, binary.BigEndian.AppendUint32(nil, v))
}

// configure makes one change and waits for the kernel's word on it. Packets that come
// before it are passed over.
func (k *Kernel) configure(seq uint32, attrs func([]byte) []byte) error {
	b, begin := nfattr.AppendHeader(nil, unix.NFNL_SUBSYS_ULOG<<8|msgConfig, unix.NLM_F_ACK, seq)
	b[begin+unix.SizeofNlMsghdr] = unix.AF_UNSPEC
	binary.BigEndian.PutUint16(b[begin+unix.SizeofNlMsghdr+2:], k.group)
	b = attrs(b)
	nfattr.EndMessage(b, begin)
	if _, err := k.file.Write(b); err != nil {
		return err
	}
	if err := k.file.SetReadDeadline(k.now().Add(patience)); err != nil {
		return err
	}
	in := make([]byte, receiveBuffer)
	for {
		n, err := k.file.Read(in)
		if errors.Is(err, syscall.ENOBUFS) {
			continue
		}
		if err != nil {
			return err
		}
		answered := false
		var refused error
		err = messages(in[:n], func(typ uint16, body []byte) {
			if typ == unix.NLMSG_ERROR && len(body) >= 4 {
				answered = true
				if errno := -int32(binary.NativeEndian.Uint32(body)); errno != 0 {
					refused = syscall.Errno(errno)
				}
			}
		})
		if answered || err != nil {
			return errors.Join(refused, err)
		}
	}
}

// messages calls each with the type and the body of every message of a datagram.
func messages(b []byte, each func(typ uint16, body []byte)) error {
	for len(b) >= unix.SizeofNlMsghdr {
		length := int(binary.NativeEndian.Uint32(b))
		if length < unix.SizeofNlMsghdr || length > len(b) {
			return io.ErrUnexpectedEOF
		}
		each(binary.NativeEndian.Uint16(b[4:]), b[unix.SizeofNlMsghdr:length])
		b = b[min((length+3)&^3, len(b)):]
	}
	return nil
}
