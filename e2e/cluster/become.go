package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sync/errgroup"
)

// Become replaces this process by kubectl or helm as the cluster's administrator.
func (c *Cluster) Become(client string, args []string) error {
	return become(c.client(context.Background(), client, args...))
}

// BecomeOn replaces this process by a program on a host: node-a, node-b,
// control, world or fabric.
func (c *Cluster) BecomeOn(host string, args []string) error {
	pid, ok := holder(host)
	if !ok {
		return fmt.Errorf("there is no host %s", host)
	}
	h := &Host{Name: host, pid: pid}
	return become(h.Command(context.Background(), args[0], args[1:]...))
}

func become(cmd *exec.Cmd) error {
	if cmd.Err != nil {
		return cmd.Err
	}
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	return syscall.Exec(cmd.Path, cmd.Args, cmd.Env)
}

// Load gives every node the images of a tarball.
func (c *Cluster) Load(tarball string) error {
	path, err := filepath.Abs(tarball)
	if err != nil {
		return fmt.Errorf("load %s: %w", tarball, err)
	}
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("load images: %w", err)
	}
	var all errgroup.Group
	for _, n := range c.Nodes {
		all.Go(func() error { return n.Load(path) })
	}
	return errors.Join(all.Wait())
}
