package lab

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// withoutXtables starts a process to which the kernel has neither ipset nor xtables. The
// kernel of the machine may have both built in, where no module can be refused: by a seccomp
// filter the requests for them are answered as by a kernel without them. The process's children
// inherit the filter.
func withoutXtables(start func() error) error {
	result := make(chan error)
	go func() {
		// The filter is of this thread, which is not unlocked: it ends with the goroutine.
		runtime.LockOSThread()
		listener, err := refuseXtables()
		if err == nil {
			go answer(listener)
			err = start()
		}
		result <- err
	}()
	return <-result
}

// Socket options of xtables, iptables' then ip6tables' (linux/netfilter_ipv4/ip_tables.h,
// linux/netfilter_ipv6/ip6_tables.h), and of ipset (linux/netfilter/ipset/ip_set.h).
var refusedOptions = map[uint32][]uint32{unix.SOL_IP: {64, 65, 66, 67, 83}, unix.SOL_IPV6: {64, 65, 68, 69}}

// Offsets in struct seccomp_data of linux/seccomp.h, of the low halves.
const (
	callNumber = 0
	secondArg  = 16 + 8
	thirdArg   = 16 + 2*8
)

// refuseXtables filters the system calls of the calling thread. Socket options of refused
// modules are unknown; what is sent is handed to the listener, as a filter sees no memory.
func refuseXtables() (listener int, err error) {
	load := func(offset uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: offset, Size: 4} }
	// one returns a verdict for values of what is loaded.
	one := func(verdict uint32, values ...uint32) (out []bpf.Instruction) {
		for _, v := range values {
			out = append(out, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: v, SkipTrue: 1}, bpf.RetConstant{Val: verdict})
		}
		return out
	}
	program := append([]bpf.Instruction{load(callNumber)}, one(unix.SECCOMP_RET_USER_NOTIF, unix.SYS_SENDTO, unix.SYS_SENDMSG)...)
	program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_GETSOCKOPT, SkipTrue: 2}, bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_SETSOCKOPT, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW})
	for level, options := range refusedOptions {
		refuse := append([]bpf.Instruction{load(thirdArg)}, one(unix.SECCOMP_RET_ERRNO|uint32(unix.ENOPROTOOPT), options...)...)
		program = append(program, load(secondArg), bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: level, SkipTrue: uint8(len(refuse))})
		program = append(program, refuse...)
	}
	raw, err := bpf.Assemble(append(program, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}))
	if err != nil {
		return -1, err
	}
	filters := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filters[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	prog := unix.SockFprog{Len: uint16(len(filters)), Filter: &filters[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return -1, fmt.Errorf("filter system calls: %w", errno)
	}
	return int(fd), nil
}

// call is a system call that waits for an answer (struct seccomp_notif of linux/seccomp.h).
type call struct {
	id             uint64
	pid, flags     uint32
	number         int32
	arch           uint32
	instruction    uint64
	_, buf, length uint64
	_              [3]uint64
}

// reply is the answer (struct seccomp_notif_resp).
type reply struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

// goOn is the flag of a call that the kernel does (SECCOMP_USER_NOTIF_FLAG_CONTINUE).
const goOn = 1

// answer answers what the filtered processes send, until they have ended.
func answer(listener int) {
	defer unix.Close(listener)
	for {
		ready := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(ready, -1); err == unix.EINTR {
			continue
		} else if err != nil || ready[0].Revents&unix.POLLIN == 0 {
			return
		}
		var c call
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&c))); errno != 0 {
			continue // the process has ended
		}
		c.misdirect()
		r := reply{id: c.id, flags: goOn}
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&r)))
	}
}

// refusedSubsystems are nfnetlink's numbers for ipset and for xtables in nftables
// (linux/netfilter/nfnetlink.h).
var refusedSubsystems = []byte{unix.NFNL_SUBSYS_IPSET, unix.NFNL_SUBSYS_NFT_COMPAT}

// unregistered is a subsystem that no kernel has.
const unregistered = 0xff

// misdirect sends a netlink message for a refused subsystem to one that is not registered, so
// that the kernel answers as it does where the module is missing.
func (c *call) misdirect() {
	at, length := c.buf, c.length
	if c.number == unix.SYS_SENDMSG {
		// struct msghdr has the address of its struct iovec behind the name.
		vectors := c.read(c.buf+16, 8)
		if vectors == nil {
			return
		}
		first := c.read(binary.NativeEndian.Uint64(vectors), 16)
		if first == nil {
			return
		}
		at, length = binary.NativeEndian.Uint64(first), binary.NativeEndian.Uint64(first[8:])
	}
	if length < unix.SizeofNlMsghdr {
		return
	}
	header := c.read(at, unix.SizeofNlMsghdr)
	if header == nil || uint64(binary.NativeEndian.Uint32(header)) > length || !slices.Contains(refusedSubsystems, header[subsystemAt]) {
		return
	}
	b := []byte{unregistered}
	_, _ = unix.ProcessVMWritev(int(c.pid), []unix.Iovec{{Base: &b[0], Len: 1}}, []unix.RemoteIovec{{Base: uintptr(at + subsystemAt), Len: 1}}, 0)
}

// subsystemAt is where the high byte of a message's type is, on amd64 and arm64.
const subsystemAt = 5

// read reads memory of the process, nil if it cannot.
func (c *call) read(at uint64, length int) []byte {
	b := make([]byte, length)
	if n, err := unix.ProcessVMReadv(int(c.pid), []unix.Iovec{{Base: &b[0], Len: uint64(length)}}, []unix.RemoteIovec{{Base: uintptr(at), Len: length}}, 0); err != nil || n != length {
		return nil
	}
	return b
}
