package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/namegate/namegate/e2e/bench/child"
	"github.com/namegate/namegate/e2e/bench/process"
	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// raised are limits of pods out of the way: the server is measured, not its bounds.
const raised = `limits {
        queries 65536
        queries_per_pod 65536
        rate_per_pod 1000000
        burst_per_pod 1000000
    }`

const gateCorefile = `. {
    forward . 192.0.2.53
    cluster cluster.local 10.1.0.0/24 fd00:1::/64
    cache
    %s
    %s
}
`

const gateAudit = `audit AUDIT {
        size 64MiB
        keep 1
    }`

// manner is how an agent is configured.
type manner struct {
	limits string // "" for the defaults
	silent bool   // it has no audit log
}

// corefile is the Corefile of an agent.
func (m manner) corefile() string {
	if m.silent {
		return fmt.Sprintf(gateCorefile, "audit off", m.limits)
	}
	return fmt.Sprintf(gateCorefile, gateAudit, m.limits)
}

// The pods of every lab of the benchmark.
const (
	client    = "client"
	neighbour = "neighbour"
)

// gate is a node with the agent, pods that policies select, and an upstream.
type gate struct {
	*lab.Lab
	agent    *lab.Agent
	upstream *child.Child
	pid      int
	silent   bool
}

// gate returns the node with an agent of a manner; it is built once.
func (b *bench) gate(m manner) *gate {
	if g := b.gates[m]; g != nil {
		return g
	}
	g := &gate{silent: m.silent}
	b.gates[m] = g
	var err error
	g.Lab = b.newLab()
	dir := filepath.Join(b.Dir, fmt.Sprintf("gate%d", len(b.gates)))
	fatal.If(b, os.Mkdir(dir, 0o755))
	g.upstream, err = child.Self(g.World, dir, "upstream", serveWord, "upstream", resolver.String())
	fatal.If(b, err)
	g.agent, err = g.NewAgent(b.Agent, dir, m.corefile())
	fatal.If(b, err)
	fatal.If(b, g.agent.Write(manifests(map[string]*lab.Pod{client: g.Pod(client), neighbour: g.Pod(neighbour)})))
	fatal.If(b, g.agent.Start())
	g.pid, err = process.Listener(g.agent.Socket())
	fatal.If(b, err)
	return g
}

// newLab builds a node with the two pods.
func (b *bench) newLab() *lab.Lab {
	l, err := lab.New(lab.Routed)
	fatal.If(b, err)
	for i, name := range []string{client, neighbour} {
		if _, err := l.AddPod(name, 10+i); err != nil {
			b.Fatal(errors.Join(err, l.Remove()))
		}
	}
	if err := l.Ready(); err != nil {
		b.Fatal(errors.Join(err, l.Remove()))
	}
	return l
}

// target returns the agent as a server to be measured.
func (g *gate) target() target {
	name := "namegate"
	if g.silent {
		name = noAudit
	}
	return target{name: name, pid: g.pid, pod: g.Pod(client).Host, at: resolver, gate: g}
}

func (g *gate) remove() error {
	var errs []error
	if g.agent != nil {
		errs = append(errs, g.agent.Stop(syscall.SIGKILL))
	}
	if g.upstream != nil {
		errs = append(errs, g.upstream.Stop())
	}
	if g.Lab != nil {
		errs = append(errs, g.Remove())
	}
	return errors.Join(errs...)
}
