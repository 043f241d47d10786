package iptables

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// getInfoOption is IPT_SO_GET_INFO and IP6T_SO_GET_INFO, IPT_BASE_CTL of
// linux/netfilter_ipv4/ip_tables.h and its like of IPv6.
const getInfoOption = 64

// info is struct ipt_getinfo; that of IPv6 is the same.
type info struct {
	name       [32]byte
	validHooks uint32
	hookEntry  [5]uint32
	underflow  [5]uint32
	numEntries uint32
	size       uint32
}

// Fingerprint implements Interface: how many entries a legacy table has, and where its
// chains begin.
func (e *Exec) Fingerprint(f Family, table string) (string, error) {
	if e.variant != Legacy {
		return "", nil
	}
	i, err := getInfo(f, table)
	if err != nil {
		return "", fmt.Errorf("look at the %s %s table: %w", f, table, err)
	}
	return fmt.Sprint(i.numEntries, i.size, i.hookEntry), nil
}

// getInfo asks the kernel about a legacy table in the calling thread's network namespace.
func getInfo(f Family, table string) (i info, err error) {
	domain, level, size := unix.AF_INET, unix.IPPROTO_IP, uint32(unsafe.Sizeof(i))
	if f == IPv6 {
		domain, level = unix.AF_INET6, unix.IPPROTO_IPV6
	}
	fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return i, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	copy(i.name[:len(i.name)-1], table)
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), getInfoOption, uintptr(unsafe.Pointer(&i)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return i, os.NewSyscallError("getsockopt", errno)
	}
	return i, nil
}
