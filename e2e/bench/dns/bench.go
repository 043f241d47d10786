package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/namegate/namegate/e2e/bench/ground"
)

// bench is what the measurements share.
type bench struct {
	options
	*ground.Ground
	gates   map[manner]*gate
	peers   *peers
	next    int // the number of the next new name
	removed error
}

func newBench(ctx context.Context, o options, out, notes io.Writer) (*bench, error) {
	b := &bench{options: o, gates: map[manner]*gate{}}
	for _, path := range []*string{&b.agent, &b.coredns} {
		var err error
		if *path, err = filepath.Abs(*path); err != nil {
			return nil, err
		}
		if _, err := os.Stat(*path); err != nil {
			return nil, fmt.Errorf("a program to measure is missing: %w; make bench-dns builds it", err)
		}
	}
	var err error
	b.Ground, err = ground.Open(ctx, out, notes)
	return b, err
}

// logs prints the end of the agents' logs, for the analysis of a failed measurement.
func (b *bench) logs() {
	if b.Context.Err() != nil {
		return
	}
	for _, g := range b.gates {
		if g.agent != nil {
			b.Note("the agent's log ends with:\n%s", g.agent.Log())
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
	errs = append(errs, b.Close())
	b.removed = errors.Join(errs...)
	return b.removed
}
