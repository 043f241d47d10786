// Command scale measures what agents ask of the API server of a large cluster: the real API
// server and etcd in a network namespace, with Nodes, Leases, pods and policies that it
// creates, and the clients of some real agents, without a kernel. The figures of the other
// agents are computed from theirs. Each figure is one JSON line on the standard output.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/namegate/namegate/e2e/bench/ground"
	"github.com/namegate/namegate/e2e/lab"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// options are what the benchmark is told.
type options struct {
	programs                      string
	nodes, pods, policies, agents int
	peers, changes, writers       int
	watchNodes                    bool
	span                          time.Duration
}

func parse(args []string, out io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("scale", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&o.programs, "programs", "bin/cluster", "the folder of kube-apiserver, etcd and kubectl")
	f.IntVar(&o.nodes, "nodes", 5000, "how many Nodes, each with a Lease of its agent")
	f.IntVar(&o.pods, "pods", 150000, "how many pods, spread over the Nodes")
	f.IntVar(&o.policies, "policies", 500, "how many FQDNNetworkPolicies")
	f.IntVar(&o.peers, "peers", 50, "how many NetworkPolicies with pods as peers, in the namespaces of as many policies")
	f.IntVar(&o.agents, "agents", 50, "how many clients of real agents")
	f.IntVar(&o.changes, "changes", 200, "how many pods change, for the bytes of a change")
	f.IntVar(&o.writers, "writers", 32, "how many requests create objects at a time")
	f.BoolVar(&o.watchNodes, "watch-nodes", true, "agents watch all Nodes; false: each its own alone")
	f.DurationVar(&o.span, "span", time.Minute, "how long the agents are measured while nothing changes")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("%q is too much; see -help", f.Arg(0))
	case o.agents < 1 || o.agents > o.nodes || o.nodes > 1<<16:
		return o, errors.New("-agents is at least 1 and at most -nodes, which is at most 65536")
	case o.pods < o.nodes || o.pods > o.nodes*podsOfNode:
		return o, fmt.Errorf("-pods is at least -nodes, and at most %d for each of them", podsOfNode)
	case o.policies < 1 || o.peers < 0 || o.peers > o.policies || o.changes < 1 || o.changes > o.pods || o.writers < 1:
		return o, errors.New("-policies, -changes and -writers are at least 1, -peers at most -policies, -changes at most -pods")
	case o.span < time.Second:
		return o, errors.New("-span is at least 1s")
	}
	return o, nil
}

func run(args []string, out, notes io.Writer) int {
	o, err := parse(args, notes)
	return ground.Status("bench-scale", err, notes, func(ctx context.Context) error { return measure(ctx, o, out, notes) })
}

// bench is what the parts of the measurement share.
type bench struct {
	options
	*ground.Ground
	host *lab.Host // the namespace of everything
	api  *server
	etcd *http.Client
}

// measure creates the cluster, runs the agents' clients, and takes everything down.
func measure(ctx context.Context, o options, out, notes io.Writer) (err error) {
	if o.programs, err = filepath.Abs(o.programs); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(o.programs, "kube-apiserver")); err != nil {
		return fmt.Errorf("the API server is not built; run make bench-scale: %w", err)
	}
	g, err := ground.Open(ctx, out, notes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	l, err := lab.New(lab.Routed)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Remove()) }()
	b := &bench{options: o, Ground: g, host: l.Node}
	b.etcd = b.etcdClient()
	if b.api, err = b.startServer(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.api.stop()) }()
	if err := b.memory("empty"); err != nil {
		return err
	}
	if err := b.fill(ctx); err != nil {
		return err
	}
	if err := b.memory("objects"); err != nil {
		return err
	}
	if err := b.runAgents(ctx); ctx.Err() != nil {
		return errors.Join(ground.ErrInterrupted, err)
	} else if err != nil {
		return err
	}
	return nil
}
