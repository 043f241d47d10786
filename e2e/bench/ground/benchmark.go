package ground

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Benchmark is a program that measures parts of Namegate.
type Benchmark struct {
	// Verb of make runs it.
	Verb string
	// Options are the defaults.
	Options
	// Flags adds options to those of every benchmark; nil for none.
	Flags func(*flag.FlagSet)
	// Open prepares the parts; Close takes down what all of them share, nil for nothing.
	Open  func(*Ground)
	Close func() error
	// Parts are measured in this order.
	Parts []Part
	Goals []Goal
}

// Options are those of every benchmark.
type Options struct {
	// Agent is the agent's binary.
	Agent string
	// Rounds is how often each server or node is measured, Span for how long each time.
	Rounds int
	Span   time.Duration
}

// Part is one measurement of a benchmark.
type Part struct {
	Name string
	Run  func()
}

// minSpan is how long a server has to be measured for its processor time, which the kernel
// counts in hundredths of a second, to mean something.
const minSpan = 100 * time.Millisecond

// Main runs the benchmark as the command line has it, and returns the exit status: 0 where
// everything was measured, whatever the figures are, 2 otherwise.
func (b Benchmark) Main() int {
	err := b.parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		defer stop()
		err = b.run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: "+err.Error())
		return 2
	}
	return 0
}

func (b *Benchmark) parse(args []string) error {
	var names []string
	for _, p := range b.Parts {
		names = append(names, p.Name)
	}
	f := flag.NewFlagSet(b.Verb, flag.ContinueOnError)
	f.StringVar(&b.Agent, "agent", "bin/namegate", "the agent's binary (make build)")
	f.IntVar(&b.Rounds, "rounds", b.Rounds, "how often each server or node is measured")
	f.DurationVar(&b.Span, "span", b.Span, "how long it is measured in one round")
	only := f.String("only", strings.Join(names, ","), "measure these parts")
	if b.Flags != nil {
		b.Flags(f)
	}
	if err := f.Parse(args); err != nil {
		return err
	}
	chosen := strings.Split(*only, ",")
	for _, name := range chosen {
		if !slices.Contains(names, name) {
			return fmt.Errorf("-only %s is not known; write some of %s", name, strings.Join(names, ","))
		}
	}
	b.Parts = slices.DeleteFunc(b.Parts, func(p Part) bool { return !slices.Contains(chosen, p.Name) })
	switch {
	case f.NArg() > 0:
		return fmt.Errorf("%q is too much; see -help", f.Arg(0))
	case b.Rounds < 1 || b.Span < minSpan:
		return fmt.Errorf("-rounds is at least 1, -span at least %s", minSpan)
	case os.Geteuid() != 0:
		return errors.New("it makes network namespaces; run it as root, for example: sudo make " + b.Verb)
	}
	return nil
}

// run measures the parts and takes everything down, also after an error and when ctx ends.
func (b *Benchmark) run(ctx context.Context) (err error) {
	if b.Agent, err = Program(b.Agent); err != nil {
		return err
	}
	g := &Ground{Options: b.Options, Context: ctx, out: os.Stdout, notes: os.Stderr, begun: time.Now()}
	if err := g.open(); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.measure(b)
	}()
	<-done
	var removed error
	if b.Close != nil {
		removed = b.Close()
	}
	removed = errors.Join(removed, g.close())
	if ctx.Err() != nil {
		return errors.Join(errInterrupted, removed)
	}
	if err := errors.Join(g.err, removed); err != nil {
		return err
	}
	g.verdict(b.Goals)
	return nil
}

// Program returns the path of a program that is to be measured, which does not depend on the
// folder.
func Program(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		return "", fmt.Errorf("a program to measure is missing: %w; the verb of make builds it", err)
	}
	return path, nil
}
