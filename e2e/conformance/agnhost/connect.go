package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// connect tries one connection. The error begins with the word that agnhost has for it.
func connect(flags *flag.FlagSet, args []string) error {
	timeout := flags.Duration("timeout", 0, "")
	protocol := flags.String("protocol", "tcp", "")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("UNKNOWN: %w", err)
	}
	to, err := one(flags.Args(), "HOST:PORT")
	if err != nil {
		return err
	}
	return classify(dial(*protocol, to, *timeout))
}

// again is how long a packet waits for its answer before it is sent again, as by TCP and SCTP (T1-init
// and T1-cookie of RFC 9260): one may be lost.
const again = time.Second

// exchange sends a packet until answer has one, or until the deadline.
func exchange(c net.Conn, packet []byte, deadline time.Time, answer func() error) error {
	for {
		if _, err := c.Write(packet); err != nil {
			return err
		}
		until := time.Now().Add(again)
		last := !until.Before(deadline)
		if last {
			until = deadline
		}
		if err := c.SetReadDeadline(until); err != nil {
			return err
		}
		if err := answer(); last || !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
}

// dial connects. Over UDP the server has to answer, over SCTP it has to confirm the
// association. Without a timeout these take a minute.
func dial(protocol, to string, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	if timeout == 0 {
		deadline = time.Now().Add(time.Minute)
	}
	if protocol == "sctp" {
		return dialSCTP(to, deadline)
	}
	c, err := net.DialTimeout(protocol, to, timeout)
	if err != nil || protocol != "udp" {
		if err == nil {
			err = c.Close()
		}
		return err
	}
	defer c.Close()
	return exchange(c, []byte("hostname\n"), deadline, func() error {
		_, err := c.Read(make([]byte, 1024))
		return err
	})
}

func classify(err error) error {
	var late net.Error
	var unresolved *net.DNSError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unresolved):
		return fmt.Errorf("DNS: %w", err)
	case errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &late) && late.Timeout():
		return fmt.Errorf("TIMEOUT: %w", err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("REFUSED: %w", err)
	}
	return fmt.Errorf("OTHER: %w", err)
}

// sweep tries TCP connections at once and prints those that failed, with the error of each.
func sweep(flags *flag.FlagSet, args []string) error {
	timeout := flags.Duration("timeout", 0, "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	failed := map[string]string{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, to := range flags.Args() {
		all.Go(func() {
			if err := classify(dial("tcp", to, *timeout)); err != nil {
				mu.Lock()
				failed[to] = err.Error()
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return show(failed)
}

const (
	holdInterval = 200 * time.Millisecond
	holdPatience = 10 * time.Second // for one line: several retransmissions
)

// hold starts a connection that goes on when the command has ended.
func hold(_ *flag.FlagSet, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("UNKNOWN: %w", err)
	}
	cmd := exec.Command(self, append([]string{"holding"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd.Start()
}

// held is the state of a connection that goes on.
type held struct {
	Rounds int    `json:"rounds"`          // lines that came back
	Error  string `json:"error,omitempty"` // which ended it
}

// holding sends lines over one TCP connection until one does not come back, and writes its
// state to a file each time.
func holding(_ *flag.FlagSet, args []string) error {
	if len(args) != 2 {
		return errors.New("UNKNOWN: write HOST:PORT and a file")
	}
	var h held
	h.Error = classify(h.run(args[0], args[1])).Error()
	return h.write(args[1])
}

func (h *held) run(to, file string) error {
	c, err := net.DialTimeout("tcp", to, holdPatience)
	if err != nil {
		return err
	}
	defer c.Close()
	lines := bufio.NewReader(c)
	for {
		if err := c.SetDeadline(time.Now().Add(holdPatience)); err != nil {
			return err
		}
		word := fmt.Sprintf("line %d\n", h.Rounds)
		if _, err := fmt.Fprint(c, word); err != nil {
			return err
		}
		for got := ""; got != word; { // a server may greet
			if got, err = lines.ReadString('\n'); err != nil {
				return err
			}
		}
		h.Rounds++
		if err := h.write(file); err != nil {
			return err
		}
		time.Sleep(holdInterval)
	}
}

func (h *held) write(file string) error {
	text, err := json.Marshal(h)
	if err == nil {
		err = os.WriteFile(file+".new", text, 0o644)
	}
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	return err
}

// state prints the file of a connection that goes on, nothing if there is none yet.
func state(_ *flag.FlagSet, args []string) error {
	file, err := one(args, "the file")
	if err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	fmt.Print(string(text))
	return err
}
