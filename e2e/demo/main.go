// Command demo builds a node, pods and an outside world from network namespaces,
// starts the real agent on the node with the manifests of examples/, and shows
// what happens to real packets. It ends with status 1 if anything is not as
// promised, and takes everything down whatever happens.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout)) }

// options are what the demo is told.
type options struct {
	agent, examples string
	keep, clean     bool
}

func parse(args []string, out io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("demo", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&o.agent, "agent", "bin/namegate", "the agent's binary (make build)")
	f.StringVar(&o.examples, "examples", "examples", "the folder with Corefile and manifests/")
	f.BoolVar(&o.keep, "keep", false, "leave everything standing until Ctrl-C, and say how to look around")
	f.BoolVar(&o.clean, "clean", false, "only remove what killed demos and tests left")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("%q is too much; see -help", f.Arg(0))
	}
	return o, nil
}

// run returns the exit status: 0 all as promised, 1 not so, 2 it could not run.
func run(args []string, out io.Writer) int {
	o, err := parse(args, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
	case os.Geteuid() != 0:
		err = errors.New("it makes network namespaces; run it as root, for example: sudo make demo")
	case o.clean:
		err = clean(out)
	default:
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		defer stop()
		var good bool
		if good, err = show(ctx, o, out); err == nil && !good {
			return 1
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo: "+err.Error())
		return 2
	}
	return 0
}

var errInterrupted = errors.New("interrupted; everything is taken down")

// show builds the stage, tours and takes everything down, also after an error
// and when ctx ends. good tells whether every check held.
func show(ctx context.Context, o options, out io.Writer) (good bool, err error) {
	p := newPrinter(out)
	begun := time.Now()
	s, err := newStage(o)
	if s != nil {
		defer func() { err = errors.Join(err, s.remove()) }()
	}
	if ctx.Err() != nil {
		return false, errInterrupted
	}
	if err != nil {
		return false, err
	}
	p.scene(s, time.Since(begun))
	var ui *page
	if o.keep {
		if ui, err = s.openPage(ctx); err != nil { // before the tour, which it shows
			return false, err
		}
		defer ui.end()
	}
	t := &tour{stage: s, printer: p, ctx: ctx}
	if err := t.walk(); err != nil {
		return false, err
	}
	p.summary(time.Since(begun))
	if o.keep {
		if err := s.lookAround(ctx, p, ui.address); err != nil {
			return false, err
		}
	}
	return p.failed == 0, nil
}
