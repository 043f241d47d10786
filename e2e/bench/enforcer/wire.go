package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// roles are what the benchmark's own program does as a child, by its first word.
var roles = map[string]func(args []string) error{
	"sink":     func(a []string) error { return sink(a[0]) },
	"connect":  func(a []string) error { return clocked(a, connect) },
	"stream":   func(a []string) error { return clocked(a, stream) },
	"crr":      func(a []string) error { return clocked(a, crr) },
	"requests": func(a []string) error { return clocked(a, requests) },
	"apply":    applyChild,
	"greeter":  greeter,
	"greet":    greetings,
	"pour":     func(a []string) error { return clocked(a, pour) },
	"hold":     hold,
	"relay":    relay,
}

// clocked runs a client for a span, with "ADDR:PORT SPAN THREADS", and prints how much
// it did since all its threads were ready.
func clocked(args []string, run func(at netip.AddrPort, ready func(), over *atomic.Bool, done *atomic.Int64) error) error {
	at, err := netip.ParseAddrPort(args[0])
	if err != nil {
		return err
	}
	span, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	threads, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	var over atomic.Bool
	var done atomic.Int64
	var clients, ready sync.WaitGroup
	errs := make([]error, threads)
	ready.Add(threads)
	for i := range threads {
		clients.Go(func() {
			isReady := sync.OnceFunc(ready.Done)
			defer isReady()
			errs[i] = run(at, isReady, &over, &done)
		})
	}
	ready.Wait()
	before, start := done.Load(), time.Now()
	time.Sleep(span)
	over.Store(true)
	n, took := done.Load()-before, time.Since(start)
	clients.Wait()
	fmt.Printf("%d %d\n", n, took.Nanoseconds())
	return errors.Join(errs...)
}

// patience is how long a client waits for one call.
var patience = unix.Timeval{Sec: 2}

func socketTo(at netip.AddrPort) (fd int, to unix.Sockaddr, err error) {
	family := unix.AF_INET
	if at.Addr().Is6() {
		family = unix.AF_INET6
		to = &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
	} else {
		to = &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	}
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	return fd, to, err
}

// connect opens connections one after the other.
func connect(at netip.AddrPort, ready func(), over *atomic.Bool, done *atomic.Int64) error {
	for ready(); !over.Load(); done.Add(1) {
		if err := connectOnce(at); err != nil {
			return fmt.Errorf("connect to %s: %w", at, err)
		}
	}
	return nil
}

// stream sends over one connection as fast as it can be sent.
func stream(at netip.AddrPort, ready func(), over *atomic.Bool, done *atomic.Int64) error {
	ready()
	fd, err := dial(at)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	buf := make([]byte, 128<<10)
	for !over.Load() {
		n, err := unix.Write(fd, buf)
		if err != nil {
			return fmt.Errorf("send to %s: %w", at, err)
		}
		done.Add(int64(n))
	}
	return nil
}

// accepters is how many threads take connections.
const accepters = 2

// sink takes connections at the first of four ports and closes them, at the next one reads
// what comes, at the third answers one request of each, and at the last all requests. It
// serves both families until it is killed.
func sink(port string) error {
	first, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	failed := make(chan error)
	for i, each := range []func(fd int){func(fd int) { _ = unix.Close(fd) }, func(fd int) { go drain(fd) }, answerOnce} {
		fd, err := listen(first + i)
		if err != nil {
			return err
		}
		for range accepters {
			go func() { failed <- accept(fd, each) }()
		}
	}
	go func() { failed <- answerAll(first + 3) }()
	return <-failed
}

func listen(port int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if err := errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.Bind(fd, &unix.SockaddrInet6{Port: port}), unix.Listen(fd, 4096)); err != nil {
		return 0, fmt.Errorf("listen on port %d: %w", port, err)
	}
	return fd, nil
}

func accept(fd int, each func(int)) error {
	for {
		c, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
		switch {
		case err == nil:
			each(c)
		case !errors.Is(err, syscall.EINTR) && !errors.Is(err, syscall.ECONNABORTED):
			return fmt.Errorf("accept: %w", err)
		}
	}
}

func drain(fd int) {
	defer unix.Close(fd)
	buf := make([]byte, 128<<10)
	for {
		if n, err := unix.Read(fd, buf); n <= 0 || err != nil {
			return
		}
	}
}
