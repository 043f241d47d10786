// Command enforcer measures what enforcement costs: connections and bytes through
// the rules of the real agent on the real kernel, beside a node without rules and
// one with rules as kube-router lays them out; compiling and applying policies;
// restarts; grants while everything changes. Each figure is one JSON line on the
// standard output; what is being done, and in the end each figure beside its target,
// is on the standard error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/namegate/namegate/e2e/bench/ground"
)

func main() {
	if len(os.Args) > 1 {
		if role, ok := roles[os.Args[1]]; ok {
			os.Exit(act(role, os.Args[2:]))
		}
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// options are what the benchmark is told.
type options struct {
	agent, profile string
	only, nodes    []string
	pods           []int
	rounds         int
	span           time.Duration
}

// bench is what the measurements share.
type bench struct {
	options
	*ground.Ground
}

// measurements are the parts of the benchmark in their order.
var measurements = []struct {
	name string
	run  func(*bench) error
}{
	{"compile", (*bench).compile},
	{"apply", (*bench).apply},
	{"cluster", (*bench).cluster},
	{"peers", (*bench).peers},
	{"restart", (*bench).restart},
	{"full", (*bench).full},
	{"churn", (*bench).churn},
	{"grants", (*bench).grants},
	{"reuse", (*bench).reuse},
	{"flow", (*bench).flow},
}

func names() (out []string) {
	for _, m := range measurements {
		out = append(out, m.name)
	}
	return out
}

func parse(args []string, out io.Writer) (options, error) {
	var o options
	var only, nodes, pods string
	f := flag.NewFlagSet("enforcer", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&o.agent, "agent", "bin/namegate", "the agent's binary (make build)")
	f.StringVar(&only, "only", "", "measure only these, separated by commas: "+strings.Join(names(), ", "))
	f.StringVar(&nodes, "nodes", "", "compare only these nodes, separated by commas: "+strings.Join(nodeNames, ", "))
	f.StringVar(&pods, "pods", "1,10,110,250", "how many pods are selected, one measurement for each number")
	f.StringVar(&o.profile, "profile", "", "write profiles of the machine under the traffic of each node into this folder, made by perf")
	f.IntVar(&o.rounds, "rounds", 15, "how often each node is measured")
	f.DurationVar(&o.span, "span", 500*time.Millisecond, "how long one node is measured in one round")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("%q is too much; see -help", f.Arg(0))
	}
	if o.rounds < 1 || o.span < 100*time.Millisecond {
		return o, errors.New("-rounds is at least 1, -span at least 100ms")
	}
	var err error
	if o.only, err = ground.Choose("-only", only, names()); err != nil {
		return o, err
	}
	if o.nodes, err = ground.Choose("-nodes", nodes, nodeNames); err != nil {
		return o, err
	}
	for word := range strings.SplitSeq(pods, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 || n > maxPods {
			return o, fmt.Errorf("-pods %s is not a list of numbers from 1 to %d; write for example 1,110", pods, maxPods)
		}
		o.pods = append(o.pods, n)
	}
	return o, nil
}

func run(args []string, out, notes io.Writer) int {
	o, err := parse(args, notes)
	return ground.Status("bench-enforcer", err, notes, func(ctx context.Context) error { return measure(ctx, o, out, notes) })
}

// measure runs what was asked for; each measurement takes down what it built.
func measure(ctx context.Context, o options, out, notes io.Writer) (err error) {
	if o.agent, err = filepath.Abs(o.agent); err != nil {
		return err
	}
	if _, err := os.Stat(o.agent); err != nil {
		return fmt.Errorf("the agent to measure is missing: %w; make bench-enforcer builds it", err)
	}
	g, err := ground.Open(ctx, out, notes)
	if err != nil {
		return err
	}
	b := &bench{o, g}
	defer func() {
		removed := b.Close()
		err = errors.Join(err, removed)
		if ctx.Err() != nil {
			err = errors.Join(ground.ErrInterrupted, removed)
		}
	}()
	for _, m := range measurements {
		if slices.Contains(o.only, m.name) && ctx.Err() == nil {
			if err := m.run(b); err != nil {
				return fmt.Errorf("measure %s: %w", m.name, err)
			}
		}
	}
	b.Verdict(goals)
	return nil
}
