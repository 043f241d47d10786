package ground

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/testkit/fatal"
)

// A benchmark waits for another and removes what a killed one left.
func TestAlone(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	said, notes := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	first := &Ground{Context: ctx, Notes: notes}
	fatal.If(t, first.alone())
	second := &Ground{Context: ctx, Notes: notes}
	end := make(chan error, 1)
	go func() { end <- second.alone() }()
	lines := bufio.NewReader(said)
	if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, "another benchmark runs") {
		t.Fatalf("the second does not say why it waits: %q, %v", line, err)
	}
	select {
	case err := <-end:
		t.Fatalf("the second did not wait: %v", err)
	default:
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	first.lock.Close()
	if err := <-end; err != nil {
		t.Fatalf("the second, alone: %v", err)
	}
	third := &Ground{Context: ctx, Notes: io.Discard}
	cancel()
	if err := third.alone(); !errors.Is(err, ErrInterrupted) {
		t.Errorf("interrupted while it waited: %v", err)
	}
	second.lock.Close()
	third.lock.Close()
}

func TestSweep(t *testing.T) {
	parent := t.TempDir()
	left := filepath.Join(parent, dirPrefix+"1", "gate1")
	kept := filepath.Join(parent, "namegate-other")
	for _, dir := range []string{left, kept} {
		fatal.If(t, os.MkdirAll(dir, 0o755))
	}
	fatal.If(t, sweep(parent))
	if _, err := os.Stat(filepath.Dir(left)); !os.IsNotExist(err) {
		t.Errorf("a killed benchmark's folder stays: %v", err)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("another's folder is gone: %v", err)
	}
}

func TestNotes(t *testing.T) {
	var notes bytes.Buffer
	(&Ground{Notes: &notes, begun: time.Now()}).Note("%s%s", "latency", At(5000))
	if !strings.HasSuffix(notes.String(), "latency at 5000 q/s\n") {
		t.Errorf("%q", notes.String())
	}
}
