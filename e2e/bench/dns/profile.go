package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/namegate/namegate/e2e/bench/dnsperf"
)

// profileRate is the samples a second; not a round number, so that it does not run
// in step with timers.
const profileRate = "997"

// profiled runs the questions at the agent once more while perf looks on, and
// writes what took its time: by function alone, and with callers.
func (b *bench) profiled(name string, t target, ask asking) error {
	if b.profile == "" {
		return nil
	}
	questions, err := ask()
	if err != nil {
		return err
	}
	if _, err := exec.LookPath("perf"); err != nil {
		return fmt.Errorf("no perf for -profile; install what Debian calls linux-perf: %w", err)
	}
	if err := os.MkdirAll(b.profile, 0o755); err != nil {
		return err
	}
	data := filepath.Join(b.profile, name+".data")
	perf := exec.CommandContext(b.Context, "perf", "record", "-q", "-g", "-F", profileRate, "-o", data, "-p", strconv.Itoa(t.pid),
		"--", "sleep", strconv.FormatFloat(b.span.Seconds(), 'f', -1, 64))
	perf.Stderr = b.Notes
	if err := perf.Start(); err != nil {
		return fmt.Errorf("start perf: %w", err)
	}
	_, _, err = b.dnsperf(t, dnsperf.Run{File: questions, For: b.span + 200*time.Millisecond, Clients: clients, Outstanding: outstanding})
	if waitErr := perf.Wait(); err != nil || waitErr != nil {
		return fmt.Errorf("profile %s: %w", name, errors.Join(err, waitErr))
	}
	for suffix, args := range map[string][]string{
		"flat":    {"--no-children", "-g", "none", "-F", "overhead,sym"},
		"callers": {"--children", "-g", "caller,0.5,callee", "--percent-limit", "1", "-F", "overhead_children,overhead,sym"},
	} {
		if err := b.perfReport(data, filepath.Join(b.profile, name+"."+suffix+".txt"), args); err != nil {
			return err
		}
	}
	b.Note("profile of %s: %s", name, filepath.Join(b.profile, name+".{flat,callers}.txt"))
	return nil
}

// perfReport renders a profile as text, without the blanks that perf fills its
// columns with.
func (b *bench) perfReport(data, path string, args []string) error {
	cmd := exec.CommandContext(b.Context, "perf", append([]string{"report", "-i", data, "--stdio"}, args...)...)
	text, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("read the profile %s: %w", data, err)
	}
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		out.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return os.WriteFile(path, []byte(out.String()), 0o644)
}
