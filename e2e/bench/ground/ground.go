// Package ground runs the parts of a benchmark: alone on the machine, with a folder in memory,
// a place to report figures, and the targets that the figures are judged by.
package ground

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/bench/figure"
	"github.com/namegate/namegate/e2e/bench/process"
	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// Ground is what the parts of one benchmark share.
type Ground struct {
	Options
	// Context ends when the benchmark is interrupted.
	Context context.Context
	// Dir is a folder in memory.
	Dir        string
	out, notes io.Writer
	begun      time.Time
	lock       *os.File
	figures    []reported
	cleanups   []func() error
	err        error // that ended the benchmark
}

// Helper and Fatal make errors end the benchmark as they end a test, from the goroutine of its
// parts: see package fatal.
func (g *Ground) Helper() {}

// Fatal ends the benchmark with an error.
func (g *Ground) Fatal(args ...any) {
	for _, a := range args {
		if err, ok := a.(error); ok {
			g.err = errors.Join(g.err, err)
		} else {
			g.err = errors.Join(g.err, errors.New(fmt.Sprint(a)))
		}
	}
	runtime.Goexit()
}

// Cleanup has f take something down at the end of the part, what was built last first.
func (g *Ground) Cleanup(f func() error) { g.cleanups = append(g.cleanups, f) }

// Clean takes down what was built, before the end of the part, and goes on after errors.
func (g *Ground) Clean() {
	for _, f := range slices.Backward(g.cleanups) {
		g.err = errors.Join(g.err, f())
	}
	g.cleanups = nil
}

// measure runs the parts until one fails, or the context ends.
func (g *Ground) measure(b *Benchmark) {
	part := "nothing yet"
	defer func() {
		if g.Clean(); g.err != nil {
			g.err = fmt.Errorf("measure %s: %w", part, g.err)
		}
	}()
	b.Open(g)
	for _, p := range b.Parts {
		if g.err != nil || g.Context.Err() != nil {
			return
		}
		part = p.Name
		p.Run()
		g.Clean()
	}
}

// memory is where files cost no disk's time.
const memory = "/dev/shm"

// dirPrefix begins the name of a benchmark's folder.
const dirPrefix = "namegate-bench-"

// open waits until no other benchmark runs on this machine, and makes the folder, after it has
// removed the folders of benchmarks that were killed.
func (g *Ground) open() error {
	if err := g.alone(); err != nil {
		return err
	}
	left, err := filepath.Glob(filepath.Join(memory, dirPrefix+"*"))
	if err != nil {
		return err
	}
	for _, dir := range left {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	g.Dir, err = os.MkdirTemp(memory, dirPrefix)
	return err
}

// close removes the folder and lets the next benchmark begin.
func (g *Ground) close() error { return errors.Join(os.RemoveAll(g.Dir), g.lock.Close()) }

// errInterrupted is the end of a benchmark whose context ended.
var errInterrupted = errors.New("interrupted; everything is taken down")

// alone waits until no other benchmark runs on this machine: each would measure the other.
func (g *Ground) alone() error {
	path := filepath.Join(os.TempDir(), "bench.namegate.lock")
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
			return errInterrupted
		case !waited:
			g.Note("another benchmark runs; waiting for its end")
			waited = true
		}
	}
}

// Note tells what is being done.
func (g *Ground) Note(format string, args ...any) {
	fmt.Fprintf(g.notes, "%6.1fs  %s\n", time.Since(g.begun).Seconds(), fmt.Sprintf(format, args...))
}

// reported is a figure, and how much its rounds were disturbed.
type reported struct {
	figure.Figure
	others float64
}

// Report writes a figure; others is how much its rounds were disturbed, in shares of
// a core.
func (g *Ground) Report(f figure.Figure, others float64) {
	g.figures = append(g.figures, reported{f, others})
	fatal.If(g, f.Write(g.out))
}

// Meter measures processor time from its start on.
type Meter struct {
	ground *Ground
	server int
	ours   []int
	before spent
	began  time.Time
}

// spent is processor time used so far: by a server, by the benchmark's own processes, by all.
type spent struct{ server, ours, busy time.Duration }

// NewMeter starts a meter of a server, 0 for none. ours are processes of the benchmark beside
// its own one that run all the time.
func (g *Ground) NewMeter(server int, ours ...int) *Meter {
	m := &Meter{ground: g, server: server, ours: append(ours, os.Getpid()), began: time.Now()}
	m.before = m.read()
	return m
}

func (m *Meter) read() (s spent) {
	var err error
	if m.server != 0 {
		s.server, err = process.CPU(m.server)
		fatal.If(m.ground, err)
	}
	for _, pid := range m.ours {
		d, err := process.CPU(pid)
		fatal.If(m.ground, err)
		s.ours += d
	}
	s.busy, err = process.Busy()
	fatal.If(m.ground, err)
	return s
}

// End returns the processor time of the server since the start, and that of unrelated
// processes in shares of a core. used is the time of the benchmark's processes that began and
// ended meanwhile.
func (m *Meter) End(used time.Duration) (server time.Duration, others float64) {
	after := m.read()
	server = after.server - m.before.server
	rest := after.busy - m.before.busy - (after.ours - m.before.ours) - server - used
	// The times are in ticks: a difference may be a little below zero.
	return server, max(0, rest.Seconds()/time.Since(m.began).Seconds())
}

// AskLimit bounds one DNS exchange.
const AskLimit = 5 * time.Second

// Resolve asks a server for a name from a host once. There must be records.
func (g *Ground) Resolve(h *lab.Host, server netip.AddrPort, name string, qtype uint16) {
	r, err := h.Ask("udp", server, name, qtype, AskLimit)
	fatal.If(g, err)
	if r.Rcode != dns.RcodeSuccess || len(r.Answer) == 0 {
		g.Fatal(fmt.Errorf("ask %s for %s: %s with %d records", server, name, dns.RcodeToString[r.Rcode], len(r.Answer)))
	}
}
