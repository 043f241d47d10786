package ground

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// profileRate is the samples a second; not a round number, so that it does not run
// in step with timers.
const profileRate = "997"

// Profile lets perf look on for a span while something runs, at a process or, with
// pid 0, at the whole machine, and writes into a folder what took the time: by
// function alone, and with callers. during has to take a little longer than span.
func (g *Ground) Profile(folder, name string, pid int, span time.Duration, during func() error) error {
	if _, err := exec.LookPath("perf"); err != nil {
		return fmt.Errorf("no perf for -profile; install what Debian calls linux-perf: %w", err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	whom := []string{"-a"}
	if pid != 0 {
		whom = []string{"-p", strconv.Itoa(pid)}
	}
	data := filepath.Join(folder, name+".data")
	args := append([]string{"record", "-q", "-g", "-F", profileRate, "-o", data}, whom...)
	perf := exec.CommandContext(g.Context, "perf", append(args, "--", "sleep", strconv.FormatFloat(span.Seconds(), 'f', -1, 64))...)
	perf.Stderr = g.Notes
	if err := perf.Start(); err != nil {
		return fmt.Errorf("start perf: %w", err)
	}
	err := during()
	if waitErr := perf.Wait(); err != nil || waitErr != nil {
		return fmt.Errorf("profile %s: %w", name, errors.Join(err, waitErr))
	}
	for suffix, args := range map[string][]string{
		"flat":    {"--no-children", "-g", "none", "-F", "overhead,sym"},
		"callers": {"--children", "-g", "caller,0.5,callee", "--percent-limit", "1", "-F", "overhead_children,overhead,sym"},
	} {
		if err := g.perfReport(data, filepath.Join(folder, name+"."+suffix+".txt"), args); err != nil {
			return err
		}
	}
	g.Note("profile of %s: %s", name, filepath.Join(folder, name+".{flat,callers}.txt"))
	return nil
}

// perfReport renders a profile as text, without the blanks that perf fills its
// columns with.
func (g *Ground) perfReport(data, path string, args []string) error {
	cmd := exec.CommandContext(g.Context, "perf", append([]string{"report", "-i", data, "--stdio"}, args...)...)
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
