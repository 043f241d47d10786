// Command dns measures the agent's DNS beside its peers: the real agent on the
// real kernel, with policies, grants and audit on, a UDP echo in Go, CoreDNS and
// dnsmasq. Each figure is one JSON line on the standard output; what is being done,
// and in the end each figure beside its target, is on the standard error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/namegate/namegate/e2e/bench/fake"
	"github.com/namegate/namegate/e2e/bench/ground"
)

func main() {
	if len(os.Args) == 4 && os.Args[1] == serveWord {
		os.Exit(serve(os.Args[2], os.Args[3]))
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// serveWord begins the command line of a child that is one of the fake servers.
const serveWord = "serve"

func serve(which, at string) int {
	addr, err := netip.ParseAddrPort(at)
	if err == nil {
		err = fake.Serve(addr, fake.Responders[which])
	}
	fmt.Fprintln(os.Stderr, "bench: "+err.Error())
	return 2
}

// options are what the benchmark is told.
type options struct {
	agent, coredns, profile string
	only                    []string
	rounds                  int
	span                    time.Duration
	cache                   bool
}

// measurements are the parts of the benchmark in their order.
var measurements = []struct {
	name string
	run  func(*bench) error
}{
	{"memory", (*bench).memory}, // first: of an agent that has done nothing yet
	{"cached", (*bench).cached},
	{"snapshots", (*bench).snapshots},
	{"forwarded", (*bench).forwarded},
	{"audit", (*bench).audit},
	{"latency", (*bench).latency},
	{"fairness", (*bench).fairness},
}

func names() (out []string) {
	for _, m := range measurements {
		out = append(out, m.name)
	}
	return out
}

// minSpan is how long a server has to be measured for its processor time, which is
// told in hundredths of a second, to mean something.
const minSpan = 100 * time.Millisecond

func parse(args []string, out io.Writer) (options, error) {
	var o options
	var only string
	f := flag.NewFlagSet("dns", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&o.agent, "agent", "bin/namegate", "the agent's binary (make build)")
	f.StringVar(&o.coredns, "coredns", "bin/cluster/coredns", "CoreDNS's binary (e2e/cluster/tools/build)")
	f.StringVar(&only, "only", "", "measure only these, separated by commas: "+strings.Join(names(), ", "))
	f.IntVar(&o.rounds, "rounds", 5, "how often each server is measured")
	f.DurationVar(&o.span, "span", 2*time.Second, "how long one server is measured in one round")
	f.StringVar(&o.profile, "profile", "", "write CPU profiles of the agent into this folder, made by perf in one more run")
	f.BoolVar(&o.cache, "cache", true, "let the agent keep answers")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("%q is too much; see -help", f.Arg(0))
	}
	if o.rounds < 1 || o.span < minSpan {
		return o, errors.New("-rounds is at least 1, -span at least 100ms")
	}
	var err error
	o.only, err = ground.Choose("-only", only, names())
	return o, err
}

func run(args []string, out, notes io.Writer) int {
	o, err := parse(args, notes)
	return ground.Status("bench-dns", err, notes, func(ctx context.Context) error { return measure(ctx, o, out, notes) })
}

// measure runs what was asked for and takes everything down, also after an error
// and when ctx ends.
func measure(ctx context.Context, o options, out, notes io.Writer) (err error) {
	b, err := newBench(ctx, o, out, notes)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, b.remove())
		if ctx.Err() != nil {
			err = errors.Join(ground.ErrInterrupted, b.removed)
		}
	}()
	for _, m := range measurements {
		if slices.Contains(o.only, m.name) && ctx.Err() == nil {
			if err := m.run(b); err != nil {
				b.logs()
				return fmt.Errorf("measure %s: %w", m.name, err)
			}
		}
	}
	b.Verdict(goals)
	return nil
}
