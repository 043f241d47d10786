package main

import (
	"github.com/spf13/cobra"

	"github.com/namegate/namegate/console"
)

func grantsCommand() *cobra.Command {
	var a asking
	cmd := &cobra.Command{
		Use:   "grants [POD]",
		Short: "List what is open, for whom, by which name and for how long",
		Example: `  namegate grants shop/cart-7d9f
  namegate grants -n shop -o json`,
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
			replies, failed, err := console.Gather[console.GrantRows](cmd.Context(), agents, console.GrantsPath, query)
			if err != nil {
				return err
			}
			if err := p.Grants(replies, len(agents)); err != nil {
				return err
			}
			return p.Failed(failed)
		},
	}
	a.add(cmd)
	return cmd
}
