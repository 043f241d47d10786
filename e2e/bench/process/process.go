// Package process reads what a process costs from /proc.
package process

import (
	"bytes"
	"errors"
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
func CPU(pid int) (time.Duration, error) {
	own, _, err := times(pid)
	return own, err
}

// Whole returns CPU and that of the process's children that have ended.
func Whole(pid int) (time.Duration, error) {
	own, children, err := times(pid)
	return own + children, err
}

func times(pid int) (own, children time.Duration, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	if own, children, err = parseStat(text); err != nil {
		err = fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	return own, children, err
}

var errShort = errors.New("has too few fields")

// parseStat returns utime + stime, and cutime + cstime. The second field is the
// program's name in parentheses; it may contain blanks and parentheses.
func parseStat(text []byte) (own, children time.Duration, err error) {
	end := bytes.LastIndexByte(text, ')')
	if end < 0 {
		return 0, 0, errShort
	}
	fields := strings.Fields(string(text[end+1:])) // from the third field on
	if len(fields) < 15 {
		return 0, 0, errShort
	}
	if own, err = ticks(fields[11:13]); err == nil {
		children, err = ticks(fields[13:15])
	}
	return own, children, err
}

// Busy returns the processor time that everybody on the machine used so far.
func Busy() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	d, err := parseBusy(string(text))
	if err != nil {
		return 0, fmt.Errorf("/proc/stat: %w", err)
	}
	return d, nil
}

// parseBusy adds what the line "cpu" has but idle and iowait, and guest times,
// which user and nice contain already.
func parseBusy(text string) (time.Duration, error) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, errShort
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

// RSS returns the bytes of a process that are in memory.
func RSS(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	n, err := parseRSS(string(text))
	if err != nil {
		return 0, fmt.Errorf("/proc/%d/status: %w", pid, err)
	}
	return n, nil
}

func parseRSS(text string) (int64, error) {
	for line := range strings.Lines(text) {
		if size, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(size), "kB")), 10, 53)
			if err != nil {
				return 0, fmt.Errorf("VmRSS: %w", err)
			}
			return kib << 10, nil
		}
	}
	return 0, errors.New("has no VmRSS")
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
		return 0, fmt.Errorf("who serves %s: %w", path, credErr)
	}
	return int(cred.Pid), nil
}
