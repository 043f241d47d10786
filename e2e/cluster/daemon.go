package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// begin starts a program that stays, in the host; its output goes to a log that
// is named after it. It is ended by end or kill, and dies with the host.
func (h *Host) begin(name, program string, args ...string) error {
	log, err := openLog(h.Name + "-" + name)
	if err != nil {
		return err
	}
	defer log.Close()
	// The shell tells its number as the host counts, and becomes the program.
	const script = `echo $$ >"$0" && exec "$@"`
	cmd := h.Command(context.Background(), "sh", append([]string{"-c", script, h.pidFile(name), program}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/local/sbin:/usr/sbin:/sbin")
	cmd.SysProcAttr = detached()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s on %s: %w", name, h.Name, err)
	}
	go func() { _ = cmd.Wait() }()
	return nil
}

// stopTime is how long a daemon may take to end before it is killed.
const stopTime = 15 * time.Second

// end asks a program that begin started to end, and returns when it has ended.
func (h *Host) end(name string) error { return h.stop(name, "TERM") }

// kill ends a program that begin started at once.
func (h *Host) kill(name string) error { return h.stop(name, "KILL") }

func (h *Host) stop(name, signal string) error {
	text, err := os.ReadFile(h.pidFile(name))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("stop %s on %s: %w", name, h.Name, err)
	}
	pid := strings.TrimSpace(string(text))
	for until := time.Now().Add(stopTime); h.signal(signal, pid); signal = "0" {
		if time.Now().After(until) {
			h.signal("KILL", pid)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return os.Remove(h.pidFile(name))
}

// signal reports whether the process was there to get the signal.
func (h *Host) signal(signal, pid string) bool {
	_, err := h.Run("sh", "-c", "kill -"+signal+" "+pid)
	return err == nil
}

func (h *Host) pidFile(name string) string { return filepath.Join(pidDir, h.Name+"-"+name) }

// until calls f again and again until it succeeds or the time is over; then it
// returns the last error.
func until(ctx context.Context, what string, patience time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Process returns the number, as this machine counts, of the one process of the host's network whose
// command line has a text.
func (h *Host) Process(text string) (int, error) {
	out, err := output(exec.CommandContext(context.Background(), "pgrep", "--ns", strconv.Itoa(h.pid), "--nslist", "net", "-f", text), "", "pgrep", []string{text})
	if err != nil {
		return 0, err
	}
	found := strings.Fields(out)
	if len(found) != 1 {
		return 0, fmt.Errorf("processes of %s with %q: %v", h.Name, text, found)
	}
	return strconv.Atoi(found[0])
}
