package scenarios

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/e2e/fatal"
	"github.com/namegate/namegate/e2e/lab"
)

// smallDisk mounts one of so many bytes.
func smallDisk(t *testing.T, bytes int) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "disk")
	fatal.If(t, os.Mkdir(dir, 0o755))
	fatal.If(t, unix.Mount("namegate-test", dir, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)))
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill takes a disk up to its last byte.
func fill(t *testing.T, file string) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	fatal.If(t, err)
	defer f.Close()
	for size := 1 << 12; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else {
			fatal.If(t, err)
		}
	}
}

const metricsAt = "127.0.0.1:9911"

// metric returns a number that the agent tells at metricsAt.
func (s *stage) metric(name string) (value float64, err error) {
	c, err := s.Node.Dial("tcp", metricsAt, lab.Limit)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET /metrics HTTP/1.0\r\n\r\n"); err != nil {
		return 0, err
	}
	text, err := io.ReadAll(c)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if number, found := strings.CutPrefix(line, name+" "); found {
			return strconv.ParseFloat(strings.TrimSpace(number), 64)
		}
	}
	return 0, fmt.Errorf("no %s", name)
}

// TestFullDisk fills the disk under the audit log while a pod queries and connects: no
// answer is lost or late, the agent lives, losses are counted and reported, and when
// there is room again the log continues. Each of its lines is complete.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, 1<<20)
	path, filler := filepath.Join(disk, "audit.log"), filepath.Join(disk, "filler")
	s := edgesStage(t, routed, strings.Replace(corefile, "AUDIT", path, 1), "--metrics-addr", metricsAt)
	names := []string{"www.example.org", "b1.wild.example.org", "other.example.org", "b2.wild.example.org"}
	var lost, late lab.Status
	asked := s.disturbed("a full disk", unnoticed, names, func() {
		fill(t, filler)
		s.until("lines are lost, and counted", func(int) bool {
			lost = s.status()
			return lost.Audit.Dropped > 50
		})
		if n, err := s.metric("namegate_audit_dropped_lines_total"); err != nil || n == 0 {
			t.Errorf("its metric is %v: %v", n, err)
		}
		fatal.If(t, os.Remove(filler))
		s.until("lines are written again", func(int) bool {
			late = s.status()
			return late.Audit.Written > lost.Audit.Written+20
		})
	})
	if asked.lost > 0 || asked.slowest > unnoticed {
		t.Errorf("%d questions lost, slowest answered after %v", asked.lost, asked.slowest)
	}
	for _, said := range []string{"the audit log cannot be written", "no space left on device"} {
		if strings.Count(s.agent.Log(), said) != 1 {
			t.Errorf("not said once: %s", said)
		}
	}
	if err := s.agent.Stop(syscall.SIGTERM); err != nil {
		t.Errorf("the agent: %v", err)
	}
	lines, err := lab.AuditLines(path)
	fatal.If(t, err)
	// Each decision is in the log or counted as lost.
	if got := uint64(len(lines)); got < late.Audit.Written || got+late.Audit.Dropped < uint64(asked.sent) {
		t.Errorf("%d lines; the agent had written %d and lost %d of at least %d", got, late.Audit.Written, late.Audit.Dropped, asked.sent)
	}
}

// An agent that starts while the disk is full serves too.
func TestStartOnAFullDisk(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, 64<<10)
	path, filler := filepath.Join(disk, "audit.log"), filepath.Join(disk, "filler")
	s := edgesStage(t, routed, strings.Replace(corefile, "AUDIT", path, 1))
	fill(t, filler)
	asked := s.disturbed("a start on a full disk", outageLimit, []string{"www.example.org"}, func() {
		fatal.If(t, s.agent.Stop(syscall.SIGKILL))
		fatal.If(t, s.agent.Start())
		s.until("lines are lost, and counted", func(int) bool { return s.status().Audit.Dropped > 20 })
		fatal.If(t, os.Remove(filler))
		written := s.status().Audit.Written
		s.until("lines are written", func(int) bool { return s.status().Audit.Written > written+20 })
	})
	if asked.rcodes[dns.RcodeSuccess] == 0 || asked.rcodes[dns.RcodeRefused] > 0 {
		t.Errorf("an allowed name: %+v", asked)
	}
	if _, err := lab.AuditLines(path); err != nil {
		t.Error(err)
	}
}
