package nflog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/kernel/nfattr"
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
	cmdUnbind  = 2
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
	// patience is how long the kernel may take to answer a request, in seconds.
	patience = 10
	// retry is how long it waits for a group that another program has.
	retry = time.Second
)

// Kernel is the Interface on the network namespace of the thread that opened it.
type Kernel struct {
	group  uint16
	socket nl.SocketHandle
	close  func()
	log    *slog.Logger
	lost   atomic.Uint64
}

var _ Interface = (*Kernel)(nil)

// Open opens a socket for a group in the calling thread's network namespace. The group
// is taken by Packets.
func Open(group uint16, log *slog.Logger) (*Kernel, error) {
	s, err := nl.Subscribe(unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open a socket for NFLOG group %d: %w", group, err)
	}
	if err := errors.Join(s.SetReceiveBufferSize(socketBuffer, true), s.SetReceiveTimeout(&unix.Timeval{Sec: patience})); err != nil {
		s.Close()
		return nil, fmt.Errorf("prepare the socket for NFLOG group %d: %w", group, err)
	}
	return &Kernel{group: group, socket: nl.SocketHandle{Socket: s}, close: sync.OnceFunc(s.Close), log: log}, nil
}

// Close closes the socket, which Packets does when it returns.
func (k *Kernel) Close() { k.close() }

// Lost implements Interface.
func (k *Kernel) Lost() uint64 { return k.lost.Load() }

// Packets implements Interface.
func (k *Kernel) Packets(ctx context.Context, each func(Packet)) error {
	defer k.Close()                         // the next agent may have the group
	defer context.AfterFunc(ctx, k.Close)() // ends the read that waits
	err := k.acquire(ctx)
	for err == nil {
		var messages []syscall.NetlinkMessage
		if messages, _, err = k.socket.Socket.Receive(); errors.Is(err, syscall.ENOBUFS) {
			k.lost.Add(1)
			err = nil
		}
		now := time.Now()
		for _, m := range messages {
			if m.Header.Type != unix.NFNL_SUBSYS_ULOG<<8|msgPacket || len(m.Data) < nfattr.HeaderLen {
				continue
			}
			if p, ok := parse(m.Data[nfattr.HeaderLen:]); ok {
				p.Time = now
				each(p)
			}
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("receive packets of NFLOG group %d: %w", k.group, err)
}

// acquire makes the group this socket's, as soon as no other program has it.
func (k *Kernel) acquire(ctx context.Context) error {
	for warned := false; ; {
		err := k.bind()
		switch {
		case errors.Is(err, syscall.ENOBUFS):
			// The answer to a change may be lost among packets: it begins again without the group.
			k.lost.Add(1)
			_ = k.configure(nl.NewRtAttr(cfgCommand, nl.Uint8Attr(cmdUnbind)))
		// Some kernels return EPERM for a group of another socket.
		case !errors.Is(err, syscall.EBUSY) && !errors.Is(err, syscall.EPERM):
			return err
		case !warned:
			k.log.Warn("denied connections are not logged until another program releases the NFLOG group", "group", k.group, "error", err)
			warned = true
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(retry):
		}
	}
}

// bind takes the group and says how packets are to be handed over.
func (k *Kernel) bind() error {
	if err := k.configure(nl.NewRtAttr(cfgCommand, nl.Uint8Attr(cmdBind))); err != nil {
		return err
	}
	how := append(binary.BigEndian.AppendUint32(nil, copied), copyPacket, 0)
	err := k.configure(nl.NewRtAttr(cfgMode, how), nl.NewRtAttr(cfgTimeout, nl.BEUint32Attr(gatherTime)), nl.NewRtAttr(cfgGather, nl.BEUint32Attr(gather)))
	if err != nil {
		return err
	}
	return k.socket.Socket.SetReceiveTimeout(&unix.Timeval{})
}

// configure makes one change and waits for the kernel's word on it. Packets that come
// before it are passed over.
func (k *Kernel) configure(attrs ...*nl.RtAttr) error {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_ULOG<<8|msgConfig, unix.NLM_F_ACK)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_NETFILTER: &k.socket}
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0, ResId: nl.Swap16(k.group)})
	for _, a := range attrs {
		req.AddData(a)
	}
	_, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	return err
}
