package iptables

import (
	"fmt"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// getInfo is IPT_SO_GET_INFO and IP6T_SO_GET_INFO, IPT_BASE_CTL of
// linux/netfilter_ipv4/ip_tables.h and its like of IPv6.
const getInfo = 64

// info is struct ipt_getinfo; that of IPv6 is the same.
type info struct {
	name       [32]byte
	validHooks uint32
	hookEntry  [5]uint32
	underflow  [5]uint32
	numEntries uint32
	size       uint32
}

// infoSockets ask the kernel about legacy tables in one namespace.
type infoSockets struct {
	mu       sync.Mutex
	byFamily map[Family]int
}

// Fingerprint implements Interface: how many entries a legacy table has, and where its
// chains begin.
func (e *Exec) Fingerprint(f Family, table string) (string, error) {
	if e.variant != Legacy {
		return "", nil
	}
	fd, err := e.sockets.socket(f)
	if err != nil {
		return "", fmt.Errorf("look at the %s %s table: %w", f, table, err)
	}
	var i info
	copy(i.name[:len(i.name)-1], table)
	level, size := unix.IPPROTO_IP, uint32(unsafe.Sizeof(i))
	if f == IPv6 {
		level = unix.IPPROTO_IPV6
	}
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), getInfo, uintptr(unsafe.Pointer(&i)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return "", fmt.Errorf("look at the %s %s table: %w", f, table, os.NewSyscallError("getsockopt", errno))
	}
	return fmt.Sprint(i.numEntries, i.size, i.hookEntry), nil
}

// socket returns the socket of a family. It is of the network namespace of the thread that
// first asked for it.
func (s *infoSockets) socket(f Family) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fd, ok := s.byFamily[f]; ok {
		return fd, nil
	}
	domain := unix.AF_INET
	if f == IPv6 {
		domain = unix.AF_INET6
	}
	fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if s.byFamily == nil {
		s.byFamily = map[Family]int{}
	}
	s.byFamily[f] = fd
	return fd, nil
}

// Close closes the sockets of Fingerprint.
func (e *Exec) Close() {
	e.sockets.mu.Lock()
	defer e.sockets.mu.Unlock()
	for _, fd := range e.sockets.byFamily {
		_ = unix.Close(fd)
	}
	e.sockets.byFamily = nil
}
