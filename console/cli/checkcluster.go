package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/check"
	"github.com/namegate/namegate/console/client"
)

// prepareCluster decides whether a cluster is read: without paths as the other commands do,
// beside paths where --kube is written.
func (c *checking) prepareCluster(cmd *cobra.Command, paths []string) error {
	r := &c.reach
	if len(paths) > 0 && !cmd.Flags().Changed("kube") {
		r.kube = false
	}
	switch l := r.login; {
	case len(paths) == 0 && !r.kube:
		return errors.New("nothing to check; write the path of a manifest, of a folder, or - for the standard input, or --kube for the policies of a cluster")
	case !r.kube && (r.all || l.Kubeconfig != "" || l.Context != "" || l.Address != "" || cmd.Flags().Changed("agents")):
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
	namespaces, asked := []string{c.namespace}, []string{}
	switch {
	case c.reach.all:
		namespaces = nil
	case len(m.Files) > 0:
		namespaces = m.Spaces()
	}
	if c.pod != "" || c.ofLabels {
		asked = append(asked, c.namespace)
	}
	for _, from := range c.o.From {
		asked = append(asked, from.Namespace)
	}
	for _, of := range asked {
		if namespaces != nil && of != "" && !slices.Contains(namespaces, of) {
			namespaces = append(namespaces, of)
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
	agents, err := c.reach.agentsOf(cmd.Context(), "", scope, "")
	if err != nil {
		m.Leave(logDecides, err.Error()+"; or give an audit log with --log")
		return cmd.Context().Err()
	}
	filter := console.AuditFilter{Namespace: scope}
	c.readAgents(cmd.Context(), m, agents, filter.Query(false), cmd.ErrOrStderr())
	return cmd.Context().Err()
}

// logDecides is what is not checked without lines.
const logDecides = "names in the audit log (Unresolved, SharedAddress)"

// readAgents compares the lines that agents keep. Where lines may be missing, it leaves out the
// names that no query resolved.
func (c *checking) readAgents(ctx context.Context, m *check.Manifests, agents []client.Agent, query url.Values, errs io.Writer) {
	log, lines := check.NewLog(m), logLines{errs: errs}
	failed, incomplete, all := lines.ofAgents(ctx, agents, query, log)
	if all {
		m.Leave(logDecides, failed.Error())
		return
	}
	for _, why := range []error{failed, incomplete} {
		if why != nil {
			m.Leave("names in the audit log of every node (Unresolved)", why.Error())
			log.Partial()
		}
	}
	c.o.Log = log
}

// errIncomplete says what an agent without a known complete time may be.
var errIncomplete = errors.New("the agent does not say for how long its log is complete: it starts, or the audit of its Corefile omits lines; check again later, or give an audit log with --log")

// ofAgents adds the lines that agents keep to a log. failed is the error of the first agent that
// failed, and incomplete of the first whose lines may be incomplete; all tells whether every one failed.
func (l *logLines) ofAgents(ctx context.Context, agents []client.Agent, query url.Values, log *check.Log) (failed, incomplete error, all bool) {
	gaps, complete := make([]error, len(agents)), make([]time.Duration, len(agents))
	errs := client.Logs(ctx, agents, query, func(i int, resp *http.Response) error {
		var known bool
		if complete[i], known = client.Complete(resp); !known {
			gaps[i] = errIncomplete
		}
		return l.read(agentName(agents[i]), resp.Body, func(line audit.Line) error {
			log.Add(line)
			return nil
		})
	})
	now := time.Now()
	for i, a := range agents {
		if errs[i] == nil && gaps[i] == nil {
			log.Complete(a.Node(), now.Add(-complete[i]), now)
		}
	}
	return firstError(agents, errs), firstError(agents, gaps), len(agents) > 0 && !slices.Contains(errs, nil)
}

// firstError returns the first error, with the agent's node; nil without one.
func firstError(agents []client.Agent, errs []error) error {
	for i, err := range errs {
		if node := agents[i].Node(); err != nil && !strings.Contains(err.Error(), node) {
			return fmt.Errorf("node %s: %w", node, err)
		} else if err != nil {
			return err
		}
	}
	return nil
}
