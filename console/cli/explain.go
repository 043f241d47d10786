package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/client"
	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/console/print"
)

func explainCommand(a asking) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain POD|node/NODE NAME|IP[:PORT][/PROTOCOL]",
		Short: "Explain why a pod or a node can or cannot reach a name or an address, and how to allow it",
		Long: `Says whether a connection of the pod would be admitted now, which policies select the
pod, which match decides, whether the name is resolved and open until when, what was
denied lately, and what to write to allow it. The exit code is 1 where the
connection is denied.`,
		Example: `  namegate explain shop/cart-7d9f www.example.org:443
  namegate explain -n shop cart-7d9f 192.0.2.10:53/udp
  namegate explain node/worker-1 registry.example.org:443`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("explain takes a POD and a NAME or an IP, and there are %d arguments", len(args))
			}
			return nil
		},
		ValidArgsFunction: a.completePod,
		RunE:              func(cmd *cobra.Command, args []string) error { return a.explain(cmd, args[0], args[1]) },
	}
	a.add(cmd)
	return cmd
}

func (a *asking) explain(cmd *cobra.Command, pod, to string) error {
	p, err := a.printer(cmd)
	if err != nil {
		return err
	}
	if _, err := explain.ParseTarget(to); err != nil {
		return &console.Misused{Err: err}
	}
	agents, query, err := a.found(cmd.Context(), pod)
	if err != nil {
		return err
	}
	query.Set("to", to)
	answers, failed, err := client.Gather[explain.Explanation](cmd.Context(), agents, console.ExplainPath, query)
	if err != nil {
		return err
	}
	answer := p.Explained(print.OwnExplanation(answers))
	if missing := p.Failed(failed); missing != nil && answer == nil {
		return missing
	}
	return answer
}
