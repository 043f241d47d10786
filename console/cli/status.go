package cli

import (
	"github.com/spf13/cobra"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/client"
)

func statusCommand(a asking) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state and problems of agents",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := a.printer(cmd)
			if err != nil {
				return err
			}
			agents, err := a.reach.everybody(cmd.Context())
			if err != nil {
				return err
			}
			answers, failed, err := client.Gather[console.Status](cmd.Context(), agents, console.StatusPath, nil)
			if err != nil {
				return err
			}
			if err := p.Statuses(answers, !a.reach.cluster.on); err != nil {
				return err
			}
			return p.Failed(failed)
		},
	}
	a.add(cmd)
	return cmd
}
