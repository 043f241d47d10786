package mmsg

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// PacketBytes is the longest packet that is read whole; of a longer one so much is
	// read. A query or a reply of the usual kind needs less than a tenth.
	PacketBytes = 4096
	// batchSize is how many packets cross between kernel and process with one call.
	batchSize = 32
)

// message is struct mmsghdr of recvmmsg(2) and sendmmsg(2).
type message struct {
	header unix.Msghdr
	length uint32
	_      [4]byte
}

func multi(call, fd uintptr, first *message, count int) (int, syscall.Errno) {
	// It does not block, and so tells the scheduler nothing: that would wake the runtime's monitor.
	n, _, errno := syscall.RawSyscall6(call, fd, uintptr(unsafe.Pointer(first)), uintptr(count), unix.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}

// addrPort returns a packet's source.
func addrPort(sa *unix.RawSockaddrInet6) netip.AddrPort {
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

// putAddrPort writes an address into sa as the kernel has it, and returns its length.
func putAddrPort(sa *unix.RawSockaddrInet6, to netip.AddrPort) uint32 {
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
