package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/source/manifest"
)

// state is what a source says at one moment.
type state struct {
	input    compile.Input
	problems []policy.Problem
	files    []manifest.FileError // broken ones; a cluster has none
	cluster  policy.Cluster       // a folder knows none
	// peersUnknown is true while pods of other nodes are needed as peers and not known.
	peersUnknown bool
}

// source is where policies and pods come from.
type source interface {
	// run calls receive with each state until ctx ends.
	run(ctx context.Context, receive func(state)) error
	// follow tells which Services a Corefile forwards to.
	follow(*corefile.Config) error
}

// folder is a source of manifests.
type folder struct{ *manifest.Source }

func newFolder(dir, node string, log *slog.Logger) (folder, error) {
	s, err := manifest.New(dir, log, manifest.NodeName(node))
	return folder{s}, err
}

func (f folder) run(ctx context.Context, receive func(state)) error {
	return f.Run(ctx, func(s manifest.State) {
		receive(state{input: s.Input, problems: s.Problems, files: s.FileErrors})
	})
}

func (f folder) follow(c *corefile.Config) error {
	if services := c.Services(); len(services) > 0 {
		return fmt.Errorf("%s forwards to the Service %s, which a folder of manifests does not know; write addresses", c.File, services[0])
	}
	return nil
}
