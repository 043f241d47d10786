package proxy

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// batchMost is how many packets cross between kernel and proxy in one call.
	batchMost = 32
	// packetMost is the longest query over UDP that is read whole; one question
	// with its options needs less than a tenth.
	packetMost = 4096
)

// mmsg is struct mmsghdr of recvmmsg(2) and sendmmsg(2).
type mmsg struct {
	header unix.Msghdr
	length uint32
	_      [4]byte
}

// batch moves packets in and out of one UDP socket, many with one call. It belongs
// to one goroutine and allocates nothing after it was made.
type batch struct {
	conn syscall.RawConn
	got  int // packets of the last receive
	left int // replies that are not sent yet
	sent int
	err  error

	read, write func(fd uintptr) bool // made once

	in, out         [batchMost]mmsg
	from            [batchMost]unix.RawSockaddrInet6
	inVec, outVec   [batchMost]unix.Iovec
	packets, answer [batchMost][packetMost]byte
}

func newBatch(c *net.UDPConn) (*batch, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	b := &batch{conn: raw}
	for i := range batchMost {
		b.inVec[i].Base, b.outVec[i].Base = &b.packets[i][0], &b.answer[i][0]
		b.in[i].header.Iov, b.out[i].header.Iov = &b.inVec[i], &b.outVec[i]
		b.in[i].header.Name = (*byte)(unsafe.Pointer(&b.from[i]))
		b.in[i].header.SetIovlen(1)
		b.out[i].header.SetIovlen(1)
	}
	b.read, b.write = b.receiveNow, b.sendNow
	return b, nil
}

// receive waits for packets and returns how many came.
func (b *batch) receive() (int, error) {
	b.got, b.err = 0, nil
	if err := b.conn.Read(b.read); err != nil {
		return 0, err
	}
	return b.got, b.err
}

func (b *batch) receiveNow(fd uintptr) bool {
	for i := range batchMost {
		b.in[i].header.Namelen = unix.SizeofSockaddrInet6
		b.inVec[i].SetLen(packetMost)
	}
	n, errno := multi(unix.SYS_RECVMMSG, fd, &b.in[0], batchMost)
	switch errno {
	case 0:
		b.got = n
	case unix.EAGAIN:
		return false
	case unix.EINTR:
	default:
		b.err = errno
	}
	return true
}

// packet returns the packet of that number, and who sent it.
func (b *batch) packet(i int) ([]byte, netip.AddrPort) {
	return b.packets[i][:min(b.in[i].length, packetMost)], b.sender(i)
}

func (b *batch) sender(i int) netip.AddrPort {
	sa := &b.from[i]
	port := binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(&sa.Port))[:])
	if sa.Family == unix.AF_INET {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(sa))
		return netip.AddrPortFrom(netip.AddrFrom4(v4.Addr), port)
	}
	a := netip.AddrFrom16(sa.Addr)
	if sa.Scope_id != 0 {
		a = a.WithZone(strconv.FormatUint(uint64(sa.Scope_id), 10))
	}
	return netip.AddrPortFrom(a, port)
}

// room is where the next reply may be written.
func (b *batch) room() []byte { return b.answer[b.left][:] }

// reply queues what was written into room, n bytes, for the sender of packet i.
func (b *batch) reply(i, n int) {
	m := &b.out[b.left]
	m.header.Name, m.header.Namelen = b.in[i].header.Name, b.in[i].header.Namelen
	b.outVec[b.left].SetLen(n)
	b.left++
}

// flush sends what is queued and returns how many replies the kernel did not take.
func (b *batch) flush() (lost int) {
	b.sent = 0
	for b.sent < b.left {
		b.err = nil
		if err := b.conn.Write(b.write); err != nil {
			lost += b.left - b.sent
			break
		}
		if b.err != nil {
			lost++ // the first of the rest; the others may go elsewhere
			b.sent++
		}
	}
	b.left = 0
	return lost
}

func (b *batch) sendNow(fd uintptr) bool {
	n, errno := multi(unix.SYS_SENDMMSG, fd, &b.out[b.sent], b.left-b.sent)
	switch errno {
	case 0:
		b.sent += n
	case unix.EAGAIN:
		return false
	case unix.EINTR:
	default:
		b.err = errno
	}
	return true
}

func multi(call, fd uintptr, first *mmsg, count int) (int, syscall.Errno) {
	n, _, errno := syscall.Syscall6(call, fd, uintptr(unsafe.Pointer(first)), uintptr(count), unix.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}
