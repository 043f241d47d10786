// Package ground is what benchmarks stand on: the machine for themselves, a folder
// in memory, a place to say what is done and what was measured, and the targets that
// the figures are held against.
package ground

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/namegate/namegate/e2e/bench/figure"
)

// Ground is what the measurements of one benchmark share.
type Ground struct {
	// Context ends when the benchmark is interrupted.
	Context context.Context
	// Dir is a folder in memory.
	Dir string
	// Notes is for what is being done.
	Notes   io.Writer
	out     io.Writer
	begun   time.Time
	lock    *os.File
	figures []reported
}

// memory is where files cost no disk's time.
const memory = "/dev/shm"

// Open waits until no other benchmark runs on this machine, and makes the folder.
// Figures go to out, what is being done to notes.
func Open(ctx context.Context, out, notes io.Writer) (*Ground, error) {
	g := &Ground{Context: ctx, Notes: notes, out: out, begun: time.Now()}
	if err := g.alone(); err != nil {
		return nil, err
	}
	parent := memory
	if _, err := os.Stat(parent); err != nil {
		parent = os.TempDir()
	}
	if err := sweep(parent); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(parent, dirPrefix)
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	g.Dir = dir
	return g, nil
}

// dirPrefix begins the name of a benchmark's folder.
const dirPrefix = "namegate-bench-"

// sweep removes the folders of benchmarks that were killed. There is no living one:
// this one holds the lock.
func sweep(parent string) error {
	left, err := filepath.Glob(filepath.Join(parent, dirPrefix+"*"))
	if err != nil {
		return fmt.Errorf("look for folders of earlier benchmarks: %w", err)
	}
	var errs []error
	for _, dir := range left {
		errs = append(errs, os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}

// lockName is not swept with the folders.
const lockName = "bench.namegate.lock"

// ErrInterrupted is the end of a benchmark whose context ended.
var ErrInterrupted = errors.New("interrupted; everything is taken down")

// alone waits until no other benchmark runs on this machine: each would measure
// the other.
func (g *Ground) alone() error {
	path := filepath.Join(os.TempDir(), lockName)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("open the lock of benchmarks: %w", err)
	}
	g.lock = f
	for waited := false; ; time.Sleep(100 * time.Millisecond) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return fmt.Errorf("lock %s: %w", path, err)
		case g.Context.Err() != nil:
			return ErrInterrupted
		case !waited:
			g.Note("another benchmark runs; waiting for its end")
			waited = true
		}
	}
}

// Note tells what is being done.
func (g *Ground) Note(format string, args ...any) {
	fmt.Fprintf(g.Notes, "%6.1fs  %s\n", time.Since(g.begun).Seconds(), fmt.Sprintf(format, args...))
}

// reported is a figure, and how much its rounds were disturbed.
type reported struct {
	figure.Figure
	others float64
}

// Report writes a figure; others is how much its rounds were disturbed, in shares of
// a core.
func (g *Ground) Report(f figure.Figure, others float64) error {
	g.figures = append(g.figures, reported{f, others})
	return f.Write(g.out)
}

// Close removes the folder and lets the next benchmark begin.
func (g *Ground) Close() error { return errors.Join(os.RemoveAll(g.Dir), g.lock.Close()) }
