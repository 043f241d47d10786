package main

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

// bench is what the measurements share.
type bench struct {
	options
	ctx        context.Context
	out, notes io.Writer
	begun      time.Time
	// dir is a folder in memory; dirs below it are the agents'.
	dir     string
	lock    *os.File
	gates   map[limits]*gate
	peers   *peers
	next    int // the number of the next new name
	figures []reported
	removed error
}

// memory is where files cost no disk's time.
const memory = "/dev/shm"

func newBench(ctx context.Context, o options, out, notes io.Writer) (*bench, error) {
	b := &bench{options: o, ctx: ctx, out: out, notes: notes, begun: time.Now(), gates: map[limits]*gate{}}
	for _, path := range []*string{&b.agent, &b.coredns} {
		var err error
		if *path, err = filepath.Abs(*path); err != nil {
			return nil, err
		}
		if _, err := os.Stat(*path); err != nil {
			return nil, fmt.Errorf("a program to measure is missing: %w; make bench-dns builds it", err)
		}
	}
	if err := b.alone(); err != nil {
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
	b.dir = dir
	return b, nil
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

// alone waits until no other benchmark runs on this machine: each would measure
// the other.
func (b *bench) alone() error {
	path := filepath.Join(os.TempDir(), lockName)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("open the lock of benchmarks: %w", err)
	}
	b.lock = f
	for waited := false; ; time.Sleep(100 * time.Millisecond) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return fmt.Errorf("lock %s: %w", path, err)
		case b.ctx.Err() != nil:
			return errInterrupted
		case !waited:
			b.note("another benchmark runs; waiting for its end")
			waited = true
		}
	}
}

// note tells what is being done.
func (b *bench) note(format string, args ...any) {
	fmt.Fprintf(b.notes, "%6.1fs  %s\n", time.Since(b.begun).Seconds(), fmt.Sprintf(format, args...))
}

// reported is a figure, and how much its rounds were disturbed.
type reported struct {
	figure.Figure
	others float64
}

// report writes a figure.
func (b *bench) report(f figure.Figure, others float64) error {
	b.figures = append(b.figures, reported{f, others})
	return f.Write(b.out)
}

// logs shows what the agents printed last, for whoever has to find out why something
// could not be measured.
func (b *bench) logs() {
	if b.ctx.Err() != nil {
		return
	}
	for _, g := range b.gates {
		if g.agent != nil {
			b.note("the agent's log ends with:\n%s", g.agent.Log())
		}
	}
}

// remove takes everything down and goes on after errors.
func (b *bench) remove() error {
	var errs []error
	for _, g := range b.gates {
		errs = append(errs, g.remove())
	}
	if b.peers != nil {
		errs = append(errs, b.peers.remove())
	}
	errs = append(errs, os.RemoveAll(b.dir), b.lock.Close())
	b.removed = errors.Join(errs...)
	return b.removed
}
