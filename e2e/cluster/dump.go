package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// dumpTime bounds a Dump: the API server may be what failed.
const dumpTime = time.Minute

// Dump writes what a failure may be explained by into the folder of logs:
// objects, events, what containers said, and the nodes' rules.
func (c *Cluster) Dump() error {
	ctx, cancel := context.WithTimeout(context.Background(), dumpTime)
	defer cancel()
	dir := filepath.Join(logDir, "dump")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("dump the cluster: %w", err)
	}
	var errs []error
	write := func(name, text string, err error) {
		errs = append(errs, err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	for name, line := range map[string]string{
		"objects.txt": "get all,configmaps,networkpolicies -A -o wide",
		"nodes.txt":   "describe nodes",
		"pods.txt":    "describe pods -A",
		"events.txt":  "get events -A --sort-by=.lastTimestamp",
	} {
		text, err := c.Kubectl(ctx, "", strings.Fields(line)...)
		write(name, text, err)
	}
	for _, n := range c.Nodes {
		for program, args := range map[string]string{
			"nft": "list ruleset", "ipset": "list", "iptables-save": "", "ip6tables-save": "", "conntrack": "-L", "ip": "-d address",
		} {
			text, err := n.Run(program, strings.Fields(args)...)
			write(n.Name+"-"+program+".txt", text, err)
		}
		// Of what containers said the runtime keeps more than kubectl shows.
		errs = append(errs, copyFolder(filepath.Join(dir, n.Name+"-pods"), filepath.Join(hostDir(n.Name), "log/pods")))
	}
	return errors.Join(errs...)
}

func copyFolder(to, from string) error {
	if _, err := os.Stat(from); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return errors.Join(os.RemoveAll(to), os.CopyFS(to, os.DirFS(from)))
}
