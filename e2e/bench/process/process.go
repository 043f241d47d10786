// Package process reads what a process costs from /proc.
package process

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tick is the unit of times in /proc: USER_HZ, which is 100 on every
// architecture that Go knows.
const tick = 10 * time.Millisecond

// CPU returns the processor time that a process and its threads, also those that
// ended, used so far, in the kernel and outside, to 10 ms.
func CPU(pid int) (time.Duration, error) { return times(pid, 11, 13) }

// Whole returns CPU and that of the process's children that have ended.
func Whole(pid int) (time.Duration, error) { return times(pid, 11, 15) }

// times adds fields of a process's stat, counted from the third: the second is the
// program's name in parentheses, which may contain blanks and parentheses.
func times(pid, from, to int) (time.Duration, error) {
	path := fmt.Sprintf("/proc/%d/stat", pid)
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < to {
		return 0, fmt.Errorf("%s has too few fields", path)
	}
	return ticks(fields[from:to])
}

// Busy returns the processor time that all processes used so far: what the line "cpu" of
// /proc/stat has but idle and iowait, and guest times, which user and nice contain already.
func Busy() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, fmt.Errorf("/proc/stat does not begin with the times of all processors")
	}
	return ticks(append(fields[1:4:4], fields[6:9]...))
}

func ticks(fields []string) (time.Duration, error) {
	var sum uint64
	for _, f := range fields {
		n, err := strconv.ParseUint(f, 10, 63)
		if err != nil {
			return 0, fmt.Errorf("%q is not a number of ticks: %w", f, err)
		}
		sum += n
	}
	return time.Duration(sum) * tick, nil
}

// RSS returns the MiB of a process that are in memory.
func RSS(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	var size, resident float64 // in pages
	_, err = fmt.Sscan(string(text), &size, &resident)
	return resident * float64(os.Getpagesize()) / (1 << 20), err
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
