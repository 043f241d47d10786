package audit

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// smallDisk makes files of at most so many bytes, as a full disk does: the write
// that comes to the end is cut there.
func smallDisk(t *testing.T, bytes uint64) {
	t.Helper()
	var was syscall.Rlimit
	fatal.If(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was))
	fatal.If(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: bytes, Max: was.Max}))
	t.Cleanup(func() {
		fatal.If(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was))
	})
}

func TestACutLineIsTakenOff(t *testing.T) {
	f, _, path := newFile(t, 0, 0)
	smallDisk(t, 12)
	whole, err := f.write([]byte("aaaa\nbbbb\ncccc\ndddd\n"))
	if whole != 10 || err == nil {
		t.Fatalf("%d bytes, %v", whole, err)
	}
	holds(t, path, "aaaa bbbb")
	if f.torn || f.size != 10 {
		t.Errorf("torn %v, %d bytes", f.torn, f.size)
	}
	if whole, err := f.write([]byte("eeee\n")); whole != 0 || err == nil {
		t.Fatalf("%d bytes, %v", whole, err)
	}
	put(t, f, "f")
	holds(t, path, "aaaa bbbb f")
}

// Another agent's line behind the cut line stays.
func TestCutLineBeforeAnotherAgentsLines(t *testing.T) {
	f, _, path := newFile(t, 0, 0)
	if _, err := f.f.WriteString("half a li"); err != nil {
		t.Fatal(err)
	}
	other, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	fatal.If(t, err)
	defer other.Close()
	if _, err := other.WriteString("\nanother's\n"); err != nil {
		t.Fatal(err)
	}
	if f.truncate(9) {
		t.Error("mended")
	}
	holds(t, path, "half a li another's")
}

func TestLogOnAFullDiskHasCompleteLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l, err := Open(Options{Node: "node-1", Path: path})
	fatal.If(t, err)
	smallDisk(t, 10_000)
	const n = 200
	for range n {
		l.Write(example(t))
	}
	closeLog(t, l)
	text, err := os.ReadFile(path)
	fatal.If(t, err)
	lines := strings.SplitAfter(string(text), "\n")
	diff.Equal(t, "", lines[len(lines)-1], "torn")
	if got := uint64(len(lines) - 1); got == 0 || got != l.Written() || l.Dropped() != n-got {
		t.Errorf("%d lines, written %d, dropped %d of %d", got, l.Written(), l.Dropped(), n)
	}
}

// Some lines fit on a disk that is nearly full, and some do not: the log reports the
// beginning of the losses once, and their end once.
func TestLossesAreReportedOnce(t *testing.T) {
	var said bytes.Buffer
	clock := &still{noon}
	l := losses{now: clock.now, log: slog.New(slog.NewTextHandler(&said, nil))}
	full := errors.New("no space")
	for range 50 {
		l.note(3, full)
		clock.at = clock.at.Add(100 * time.Millisecond)
		l.note(0, nil)
	}
	if n := strings.Count(said.String(), "\n"); n != 1 || !strings.Contains(said.String(), "no space") {
		t.Errorf("said while it goes on:\n%s", &said)
	}
	clock.at = clock.at.Add(calm)
	for range 2 {
		l.note(0, nil)
	}
	if n := strings.Count(said.String(), "\n"); n != 2 || !strings.Contains(said.String(), fmt.Sprint("lost=", 150)) {
		t.Errorf("said after it:\n%s", &said)
	}
	l.note(1, full)
	if n := strings.Count(said.String(), "\n"); n != 3 {
		t.Errorf("the next time is not said:\n%s", &said)
	}
}
