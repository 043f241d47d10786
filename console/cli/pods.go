package cli

import (
	"github.com/spf13/cobra"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/print"
)

func podsCommand(a asking) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pods [POD]",
		Short: "List pods, the policies that select them, and obstacles to enforcement",
		Example: `  namegate pods -n shop
  namegate pods shop/cart-7d9f -o wide`,
		Args:              onePod,
		ValidArgsFunction: a.completePod,
		RunE: func(cmd *cobra.Command, args []string) error {
			return rows(cmd, &a, args, console.PodsPath, (*print.Printer).Pods)
		},
	}
	a.add(cmd)
	return cmd
}
