// Package process reads what a process costs from /proc.
package process

import (
	"fmt"
	"net"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// tick is the unit of times of processes in /proc: USER_HZ, which is 100 on every
// architecture that Go knows.
const tick = 10 * time.Millisecond

func stat(pid int) (procfs.ProcStat, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}, fmt.Errorf("process %d ended: %w", pid, err)
	}
	return p.Stat()
}

// CPU returns the processor time that a process and its threads, also those that
// ended, used so far, in the kernel and outside, to 10 ms.
func CPU(pid int) (time.Duration, error) {
	s, err := stat(pid)
	return time.Duration(s.UTime+s.STime) * tick, err
}

// Whole returns CPU and that of the process's children that have ended.
func Whole(pid int) (time.Duration, error) {
	s, err := stat(pid)
	return time.Duration(int(s.UTime+s.STime)+s.CUTime+s.CSTime) * tick, err
}

// Busy returns the processor time that all processes used so far. Guests' times are in
// those of users.
func Busy() (time.Duration, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	s, err := fs.Stat()
	c := s.CPUTotal
	return time.Duration((c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal) * float64(time.Second)), err
}

// RSS returns the MiB of a process that are in memory.
func RSS(pid int) (float64, error) {
	s, err := stat(pid)
	return float64(s.ResidentMemory()) / (1 << 20), err
}

// Listener returns the process that serves a unix socket.
func Listener(path string) (int, error) {
	c, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return 0, err
	}
	if credErr != nil {
		return 0, fmt.Errorf("ask which process serves %s: %w", path, credErr)
	}
	return int(cred.Pid), nil
}
