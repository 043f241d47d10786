// Package probe is what the test pods do: connections and DNS questions whose
// outcome is told apart as precisely as the kernel tells it.
package probe

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// Class is what became of a try.
type Class string

// The classes. A TCP reset in answer to the opening packet is Refused, from any
// sender; Prohibited is an ICMP message that the communication is prohibited.
const (
	OK          Class = "ok"
	Refused     Class = "refused"
	Reset       Class = "reset"
	Prohibited  Class = "prohibited"
	Unreachable Class = "unreachable"
	Timeout     Class = "timeout"
	Failed      Class = "failed"
)

// Patience is how long a try waits before it is a Timeout.
const Patience = 2 * time.Second

// Dialled is the outcome of one connection.
type Dialled struct {
	To    string `json:"to"`
	Class Class  `json:"class"`
	// From is the client's address as the server saw it, Server the server's name.
	From   string `json:"from,omitempty"`
	Server string `json:"server,omitempty"`
	Error  string `json:"error,omitempty"`
}

// Dial connects to ADDRESS:PORT over tcp or udp, says a word and waits for it to
// come back.
func Dial(ctx context.Context, network, to string) Dialled {
	d := Dialled{To: to, Class: OK}
	c, err := (&net.Dialer{Timeout: Patience}).DialContext(ctx, network, to)
	if err == nil {
		defer c.Close()
		err = d.round(c)
	}
	if err != nil {
		d.Class, d.Error = Classify(err), err.Error()
	}
	return d
}

// round says a word. The answer is a line with the server's name and the
// client's address, and the word.
func (d *Dialled) round(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(Patience)); err != nil {
		return err
	}
	word := fmt.Sprintf("hello %d", time.Now().UnixNano())
	if _, err := fmt.Fprintln(c, word); err != nil {
		return err
	}
	r := bufio.NewReader(c)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return err
		}
		line = strings.TrimSpace(line)
		if line == word {
			return nil
		}
		d.Server, d.From, _ = strings.Cut(line, " ")
	}
}

// Hello connects to ADDRESS:PORT of an echo server, sends what a TLS client with a server name begins with, and reads
// the first line of the answer.
func Hello(ctx context.Context, to, name string) Dialled {
	d := Dialled{To: to, Class: OK}
	c, err := (&net.Dialer{Timeout: Patience}).DialContext(ctx, "tcp", to)
	if err == nil {
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(Patience))
		// The server answers to the end of a line, which the name of a protocol has.
		hello := tls.Client(silent{c}, &tls.Config{ServerName: name, NextProtos: []string{"hello\n"}})
		go func() { _ = hello.HandshakeContext(ctx) }()
		var line string
		line, err = bufio.NewReader(c).ReadString('\n')
		d.Server, d.From, _ = strings.Cut(strings.TrimSpace(line), " ")
	}
	if err != nil {
		d.Class, d.Error = Classify(err), err.Error()
	}
	return d
}

// silent is a connection of which nothing is read.
type silent struct{ net.Conn }

func (s silent) Read([]byte) (int, error) { select {} }

// Classify tells the class of an error of the network.
func Classify(err error) Class {
	var late net.Error
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &late) && late.Timeout() {
		return Timeout
	}
	for _, c := range []struct {
		err   error
		class Class
	}{
		{syscall.ECONNREFUSED, Refused},
		{syscall.ECONNRESET, Reset},
		{syscall.EPIPE, Reset},
		{io.EOF, Reset},
		// IPv4 reports a prohibition as EHOSTUNREACH, IPv6 as EACCES.
		{syscall.EHOSTUNREACH, Prohibited},
		{syscall.EACCES, Prohibited},
		{syscall.ENETUNREACH, Unreachable},
	} {
		if errors.Is(err, c.err) {
			return c.class
		}
	}
	return Failed
}

// Window is what a starting pod could do before it was known: it dials an address
// that nothing allows, from its first moment on.
type Window struct {
	// Opened counts the connections that were made, LastMillis is when the last
	// of them was, in milliseconds after the begin.
	Opened     int   `json:"opened"`
	LastMillis int64 `json:"lastMillis"`
	Denied     int   `json:"denied"`
	// OpenAgain: after a connection was denied another was made.
	OpenAgain bool `json:"openAgain"`
	// Survived: the first connection that was made still works at the end.
	Survived bool `json:"survived"`
}

// windowTry is how long one try may take, and windowRest the rest after it.
const (
	windowTry  = 250 * time.Millisecond
	windowRest = 5 * time.Millisecond
)

// Watch dials ADDRESS:PORT over TCP again and again for a time.
func Watch(ctx context.Context, to string, length time.Duration) Window {
	var w Window
	var first net.Conn
	begin := time.Now()
	for time.Since(begin) < length {
		c, err := (&net.Dialer{Timeout: windowTry}).DialContext(ctx, "tcp", to)
		switch {
		case err == nil && w.Denied > 0:
			w.OpenAgain = true
			c.Close()
		case err == nil:
			w.Opened++
			w.LastMillis = time.Since(begin).Milliseconds()
			if first == nil {
				first = c
				break
			}
			c.Close()
		case Classify(err) != Unreachable: // the network is not there yet
			w.Denied++
		}
		time.Sleep(windowRest)
	}
	if first != nil {
		w.Survived = new(Dialled).round(first) == nil
		first.Close()
	}
	return w
}
