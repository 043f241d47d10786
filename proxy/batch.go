package proxy

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// packetMost is the longest query over UDP that is read whole; one question with
// its options needs less than a tenth.
const packetMost = 4096

// batch moves packets into a UDP socket's reader and replies out again, many with
// one call. It belongs to one goroutine and allocates nothing after it was made.
type batch struct {
	conn syscall.RawConn
	got  int // packets of the last receive
	err  error
	lost int
	read func(fd uintptr) bool // receiveNow, made once
	miss func(int, error)      // made once

	in      [batchMost]mmsg
	from    [batchMost]unix.RawSockaddrInet6
	vec     [batchMost]unix.Iovec
	packets [batchMost][packetMost]byte
	out     outgoing
	answer  [batchMost][packetMost]byte
}

func newBatch(conn syscall.RawConn) *batch {
	b := &batch{conn: conn}
	for i := range batchMost {
		b.vec[i].Base = &b.packets[i][0]
		b.in[i].header.Iov = &b.vec[i]
		b.in[i].header.Name = (*byte)(unsafe.Pointer(&b.from[i]))
		b.in[i].header.SetIovlen(1)
	}
	b.read = b.receiveNow
	b.miss = func(int, error) { b.lost++ }
	return b
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
		b.vec[i].SetLen(packetMost)
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
	return b.packets[i][:min(b.in[i].length, packetMost)], senderOf(&b.from[i])
}

// room is where the next reply may be written.
func (b *batch) room() []byte { return b.answer[b.out.count][:] }

// reply queues what was written into room, n bytes, for the sender of packet i.
func (b *batch) reply(i, n int) {
	h := &b.in[i].header
	b.out.add(b.room()[:n], unsafe.Pointer(h.Name), h.Namelen)
}

// flush sends what is queued and returns how many replies the kernel did not take.
func (b *batch) flush() (lost int) {
	b.lost = 0
	b.out.post(b.conn, b.miss)
	return b.lost
}

func senderOf(sa *unix.RawSockaddrInet6) netip.AddrPort {
	port := binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(&sa.Port))[:])
	if sa.Family == unix.AF_INET {
		return netip.AddrPortFrom(netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(sa)).Addr), port)
	}
	a := netip.AddrFrom16(sa.Addr)
	if sa.Scope_id != 0 {
		a = a.WithZone(strconv.FormatUint(uint64(sa.Scope_id), 10))
	}
	return netip.AddrPortFrom(a, port)
}

// receiver writes an address as the kernel has it into sa, and returns how long it is.
func receiver(sa *unix.RawSockaddrInet6, to netip.AddrPort) uint32 {
	if a := to.Addr(); a.Is4() {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(sa))
		*v4 = unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: a.As4()}
		binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&v4.Port))[:], to.Port())
		return unix.SizeofSockaddrInet4
	}
	*sa = unix.RawSockaddrInet6{Family: unix.AF_INET6, Addr: to.Addr().As16()}
	if scope, err := strconv.ParseUint(to.Addr().Zone(), 10, 32); err == nil {
		sa.Scope_id = uint32(scope)
	}
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&sa.Port))[:], to.Port())
	return unix.SizeofSockaddrInet6
}
