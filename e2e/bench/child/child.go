// Package child runs the servers and clients of benchmarks as processes on the hosts
// of a lab.
package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/namegate/namegate/e2e/lab"
)

// Child is a program that runs on a host of a lab.
type Child struct {
	name string
	cmd  *exec.Cmd
	log  string
	// done is closed when the program has ended; err is then why.
	done chan struct{}
	err  error
}

// Spawn starts a program on a host. What it prints is in a file of dir. It ends
// with the benchmark, also when that is killed.
func Spawn(h *lab.Host, dir, name, program string, args ...string) (*Child, error) {
	c := &Child{name: name, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	log, err := os.Create(c.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	c.cmd = exec.Command(program, args...)
	c.cmd.Stdout, c.cmd.Stderr, c.cmd.Dir = log, log, dir
	// A group of its own: Ctrl-C is for the benchmark, which then ends its children.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := h.Do(c.cmd.Start); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		c.err = c.cmd.Wait()
		close(c.done)
	}()
	return c, nil
}

// Self starts the benchmark's own program on a host, with args as its command line.
func Self(h *lab.Host, dir, name string, args ...string) (*Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the benchmark's own program: %w", err)
	}
	return Spawn(h, dir, name, self, args...)
}

// PID is the process's.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Failed returns why the child ended, nil while it runs.
func (c *Child) Failed() error {
	select {
	case <-c.done:
		text, _ := os.ReadFile(c.log)
		if c.err == nil {
			return fmt.Errorf("%s ended by itself; it printed:\n%s", c.name, text)
		}
		return fmt.Errorf("%s ended: %w; it printed:\n%s", c.name, c.err, text)
	default:
		return nil
	}
}

// stopLimit is how long a killed process may take to be gone.
const stopLimit = time.Minute

// Stop kills the child and waits for its end.
func (c *Child) Stop() error {
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", c.name, err)
	}
	select {
	case <-c.done:
		return nil
	case <-time.After(stopLimit):
		return fmt.Errorf("%s did not end", c.name)
	}
}
