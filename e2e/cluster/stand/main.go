// Stand brings the cluster of the scenarios up and lets it stand, for those who
// develop them.
//
//	stand up                        bring a cluster up, unless one stands
//	stand down                      remove it, or what a killed run left behind
//	stand kubectl ARG…              kubectl as administrator
//	stand helm ARG…                 helm as administrator
//	stand on HOST PROGRAM ARG…      a program on node-a, node-b, control, world or fabric
//	stand load TARBALL…             give both nodes the images of tarballs
//	stand proxy iptables|nftables   restart kube-proxy on both nodes
//	stand api stop|start            stop or start the API server
//	stand dump                      write objects, events and rules beside the logs
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/namegate/namegate/e2e/cluster"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "stand:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage: stand up | down | kubectl ARG… | helm ARG… | on HOST PROGRAM ARG… | load TARBALL… | proxy iptables|nftables | api stop|start | dump")

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	verb, args := args[0], args[1:]
	switch verb {
	case "init": // the first process of a host: not for people
		if len(args) != 1 {
			return errUsage
		}
		return cluster.Init(args[0])
	case "up":
		return up(ctx)
	case "down":
		return cluster.Clean()
	}
	c, err := cluster.Attach()
	if err != nil {
		return err
	}
	switch {
	case verb == "kubectl" || verb == "helm":
		return c.Become(verb, args)
	case verb == "on" && len(args) > 1:
		return c.BecomeOn(args[0], args[1:])
	case verb == "load" && len(args) > 0:
		return load(c, args)
	case verb == "proxy" && len(args) == 1:
		return proxy(ctx, c, cluster.ProxyMode(args[0]))
	case verb == "api" && len(args) == 1 && args[0] == "stop":
		return c.StopAPIServer()
	case verb == "api" && len(args) == 1 && args[0] == "start":
		return c.StartAPIServer(ctx)
	case verb == "dump" && len(args) == 0:
		fmt.Println(c.LogFolder())
		return c.Dump()
	}
	return errUsage
}

func up(ctx context.Context) error {
	if _, err := cluster.Attach(); err == nil {
		fmt.Println("a cluster stands already; make e2e-clean removes it")
		return nil
	}
	begin := time.Now()
	c, err := cluster.Up(ctx)
	if err != nil {
		return err
	}
	c.Leave()
	fmt.Printf("the cluster stands after %s; try: %s kubectl get pods -A\n", time.Since(begin).Round(time.Second), os.Args[0])
	return nil
}

func load(c *cluster.Cluster, tarballs []string) error {
	for _, t := range tarballs {
		if err := c.Load(t); err != nil {
			return err
		}
	}
	return nil
}

func proxy(ctx context.Context, c *cluster.Cluster, mode cluster.ProxyMode) error {
	if mode != cluster.IPTables && mode != cluster.NFTables {
		return errUsage
	}
	for _, n := range c.Nodes {
		if err := n.RestartKubeProxy(ctx, mode); err != nil {
			return err
		}
	}
	return nil
}
