package cli

import (
	"github.com/spf13/cobra"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/print"
)

func grantsCommand(a asking) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "grants [POD|node/NODE]",
		Short: "List open addresses with pod, name and remaining time",
		Example: `  namegate grants shop/cart-7d9f
  namegate grants -n shop -o json`,
		Args:              onePod,
		ValidArgsFunction: a.completePod,
		RunE: func(cmd *cobra.Command, args []string) error {
			return rows(cmd, &a, args, console.GrantsPath, (*print.Printer).Grants)
		},
	}
	a.add(cmd)
	return cmd
}
