package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/client"
	"github.com/namegate/namegate/console/print"
)

func statusCommand(a asking) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state and problems of agents",
		Long: `Shows the state and problems of the agent of this node. In a cluster it shows what the
API server knows: the nodes, whether their agents are in sync, and the problems of
policies. With --node or --all-agents it asks agents.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := a.printer(cmd)
			if err != nil {
				return err
			}
			r := &a.reach
			if err := r.check(); err != nil {
				return err
			}
			if r.kube && r.node == "" && !r.login.AllAgents {
				return a.clusterStatus(cmd.Context(), p)
			}
			agents, err := r.agentsOf(cmd.Context(), r.node, "", "")
			if err != nil {
				return err
			}
			answers, failed, err := client.Gather[console.Status](cmd.Context(), agents, console.StatusPath, nil)
			if err != nil {
				return err
			}
			if err := p.Statuses(answers, !r.kube); err != nil {
				return err
			}
			return p.Failed(failed)
		},
	}
	a.add(cmd)
	return cmd
}

// clusterStatus shows what the API server knows.
func (a *asking) clusterStatus(ctx context.Context, p *print.Printer) error {
	r := &a.reach
	c, err := r.connect(r.namespace)
	if err != nil {
		return err
	}
	s, err := c.Status(ctx, r.namespace, a.now())
	if err != nil {
		return err
	}
	return p.ClusterStatus(&s)
}
