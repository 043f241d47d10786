package cli

import (
	"fmt"
	"maps"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/client"
	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/console/print"
)

func explainCommand(a asking) *cobra.Command {
	var from string
	cmd := &cobra.Command{
		Use:   "explain POD|node/NODE NAME|IP[:PORT][/PROTOCOL]",
		Short: "Explain why a pod or a node can or cannot reach a name or an address, and how to allow it",
		Long: `Says whether a connection of the pod would be admitted now, which policies select the
pod, which match decides, whether the name is resolved and open until when, what was
denied lately, and what to write to allow it. With --from, which takes PORT or
PORT/PROTOCOL or nothing in place of the name, it says the same of a connection to the
pod or the node. The exit code is 1 where the connection is denied.`,
		Example: `  namegate explain shop/cart-7d9f www.example.org:443
  namegate explain -n shop cart-7d9f 192.0.2.10:53/udp
  namegate explain node/worker-1 registry.example.org:443
  namegate explain shop/cart-7d9f 8080 --from pay/till-0
  namegate explain node/worker-1 22 --from 192.0.2.10`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case from != "" && (len(args) < 1 || len(args) > 2):
				return fmt.Errorf("explain --from takes a POD or node/NODE and at most a PORT, and there are %d arguments", len(args))
			case from == "" && len(args) != 2:
				return fmt.Errorf("explain takes a POD and a NAME or an IP, and there are %d arguments", len(args))
			}
			return nil
		},
		ValidArgsFunction: a.completePod,
		RunE: func(cmd *cobra.Command, args []string) error {
			to := strings.Join(args[1:], "")
			if from == "" {
				_, err := explain.ParseTarget(to)
				return a.explain(cmd, args[0], url.Values{"to": {to}}, err)
			}
			_, err := explain.ParsePort(to)
			return a.explain(cmd, args[0], url.Values{"from": {from}, "port": {to}}, err)
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "explain connections to the pod or the node: a pod, an address or node/NODE that connects")
	a.add(cmd)
	return cmd
}

// explain asks the question of the parameters about a pod, and prints the answer; bad is what is wrong with them.
func (a *asking) explain(cmd *cobra.Command, pod string, question url.Values, bad error) error {
	p, err := a.printer(cmd)
	if err != nil {
		return err
	}
	if bad != nil {
		return &console.Misused{Err: bad}
	}
	agents, query, err := a.found(cmd.Context(), pod)
	if err != nil {
		return err
	}
	maps.Copy(query, question)
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
