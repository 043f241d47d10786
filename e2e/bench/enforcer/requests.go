package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	// requestSize is the bytes of a request, and of its answer.
	requestSize = 128
	// keptOpen is how many connections are kept open for requests, by all threads.
	keptOpen, requestThreads = 1000, 2
)

// crr opens connections one after the other, each for one request and its answer. The server
// closes first, so that no port of the client waits.
func crr(at netip.AddrPort, ready func(), over *atomic.Bool, done *atomic.Int64) error {
	ready()
	for buf := make([]byte, requestSize); !over.Load(); done.Add(1) {
		fd, err := dial(at)
		if err != nil {
			return err
		}
		if err := errors.Join(sendAll(fd, buf), receiveAll(fd, buf), unix.Close(fd)); err != nil {
			return fmt.Errorf("ask %s: %w", at, err)
		}
	}
	return nil
}

// requests keeps connections open with a request on each, and sends the next one where it
// read an answer.
func requests(at netip.AddrPort, ready func(), over *atomic.Bool, done *atomic.Int64) error {
	var open []int
	defer func() {
		for _, fd := range open {
			_ = unix.Close(fd)
		}
	}()
	for range keptOpen / requestThreads {
		fd, err := dial(at)
		if err != nil {
			return err
		}
		open = append(open, fd)
	}
	buf := make([]byte, requestSize)
	for _, fd := range open {
		if err := sendAll(fd, buf); err != nil {
			return fmt.Errorf("ask %s: %w", at, err)
		}
	}
	for !over.Load() {
		for _, fd := range open {
			if err := errors.Join(receiveAll(fd, buf), sendAll(fd, buf)); err != nil {
				return fmt.Errorf("ask %s: %w", at, err)
			}
			done.Add(1)
		}
		ready() // the answers to the first requests do not count
	}
	return nil
}

// dial opens a connection that gives up after patience.
func dial(at netip.AddrPort) (int, error) {
	fd, to, err := socketTo(at)
	if err != nil {
		return 0, err
	}
	if err := errors.Join(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &patience),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience), unix.Connect(fd, to)); err != nil {
		_ = unix.Close(fd)
		return 0, fmt.Errorf("connect to %s: %w", at, err)
	}
	return fd, nil
}

func sendAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func receiveAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Read(fd, b)
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrUnexpectedEOF
		}
		b = b[n:]
	}
	return nil
}

// answerOnce answers one request and closes the connection.
func answerOnce(fd int) {
	buf := make([]byte, requestSize)
	if receiveAll(fd, buf) == nil {
		_ = sendAll(fd, buf)
	}
	_ = unix.Close(fd)
}

// answerAll answers the requests of all connections to a port.
func answerAll(port int) error {
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			for buf := make([]byte, requestSize); ; {
				if _, err := io.ReadFull(c, buf); err != nil {
					return
				}
				if _, err := c.Write(buf); err != nil {
					return
				}
			}
		}()
	}
}
