package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/check"
)

// prepareCluster decides whether a cluster is read: without paths as the other commands do,
// beside paths where --kube is written.
func (c *checking) prepareCluster(cmd *cobra.Command, paths []string) error {
	r := &c.reach
	if len(paths) > 0 && !cmd.Flags().Changed("kube") {
		r.on = false
	}
	switch l := r.login; {
	case len(paths) == 0 && !r.on:
		return errors.New("nothing to check; write the path of a manifest, of a folder, or - for the standard input, or --kube for the policies of a cluster")
	case !r.on && (r.all || l.Kubeconfig != "" || l.Context != "" || l.Address != "" || cmd.Flags().Changed("agents")):
		return errors.New("--all-namespaces, --kubeconfig, --context, --agents and --address are for a cluster; write --kube too, or leave them out")
	case r.all && c.namespace != "" && c.pod == "":
		return errors.New("--all-namespaces and --namespace say two things; leave one out")
	}
	return nil
}

// cluster adds the objects of the cluster, and asks the agents for their lines where the
// cluster's own policies are checked and no other log is given.
func (c *checking) cluster(cmd *cobra.Command, m *check.Manifests) error {
	at, err := c.reach.connect(c.namespace)
	if err != nil {
		return err
	}
	if c.namespace == "" {
		c.namespace = at.Namespace()
	}
	namespaces := []string{c.namespace}
	switch {
	case c.reach.all:
		namespaces = nil
	case len(m.Files) > 0:
		namespaces = m.Spaces()
		if asked := c.pod != "" || c.labels != ""; asked && namespaces != nil && !slices.Contains(namespaces, c.namespace) {
			namespaces = append(namespaces, c.namespace)
		}
	}
	if err := m.ReadCluster(cmd.Context(), at, namespaces, c.o); err != nil {
		return err
	}
	if len(m.Files) > 0 || len(c.logs) > 0 {
		return nil
	}
	scope := c.namespace
	if c.reach.all {
		scope = ""
	}
	const decides = "names in the audit log (Unresolved, SharedAddress)"
	agents, err := c.reach.agents(cmd.Context(), scope, "")
	if err != nil {
		m.Leave(decides, err.Error()+"; or give an audit log with --log")
		return cmd.Context().Err()
	}
	query := url.Values{}
	if scope != "" {
		query.Set("namespace", scope)
	}
	log := check.NewLog(m)
	lines := logLines{errs: cmd.ErrOrStderr()}
	failed, all := lines.ofAgents(cmd.Context(), agents, query, log, time.Now)
	switch {
	case failed == nil:
		c.o.Log = log
	case all:
		m.Leave(decides, failed.Error())
	default:
		m.Leave("names in the audit log of every node (Unresolved)", failed.Error())
		log.Partial()
		c.o.Log = log
	}
	return cmd.Context().Err()
}

// ofAgents adds the lines that agents keep to a log. The error is that of the first agent that
// failed; all tells whether every one did.
func (l *logLines) ofAgents(ctx context.Context, agents []console.Agent, query url.Values, log *check.Log, now func() time.Time) (failed error, all bool) {
	errs := make([]error, len(agents))
	var wait sync.WaitGroup
	for i, a := range agents {
		wait.Go(func() {
			var first time.Time
			errs[i] = auditLines(ctx, a, query, func(name string, r io.Reader) error {
				return l.read(name, r, func(line audit.Line) error {
					if first.IsZero() || line.Time.Before(first) {
						first = line.Time
					}
					log.Add(line)
					return nil
				})
			})
			if !first.IsZero() {
				l.mu.Lock()
				defer l.mu.Unlock()
				log.Spans(first, now())
			}
		})
	}
	wait.Wait()
	all = true
	for i, err := range errs {
		if all = all && err != nil; err != nil && failed == nil {
			failed = err
			if node := agents[i].Node(); !strings.Contains(err.Error(), node) {
				failed = fmt.Errorf("node %s: %w", node, err)
			}
		}
	}
	return failed, all
}
