package main

import (
	"github.com/spf13/cobra"

	"github.com/namegate/namegate/console"
)

func podsCommand() *cobra.Command {
	var a asking
	cmd := &cobra.Command{
		Use:   "pods [POD]",
		Short: "List pods, which policies select them and what keeps these from holding",
		Example: `  namegate pods -n shop
  namegate pods shop/cart-7d9f -o wide`,
		Args:              onePod,
		ValidArgsFunction: a.completePod,
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := a.printer(cmd)
			if err != nil {
				return err
			}
			agents, query, err := a.about(cmd.Context(), firstOf(args))
			if err != nil {
				return err
			}
			replies, failed, err := console.Gather[console.PodRows](cmd.Context(), agents, console.PodsPath, query)
			if err != nil {
				return err
			}
			if err := p.Pods(replies, len(agents)); err != nil {
				return err
			}
			return p.Failed(failed)
		},
	}
	a.add(cmd)
	return cmd
}
