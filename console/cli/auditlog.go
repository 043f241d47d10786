package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/client"
)

func auditCommand(a asking) *cobra.Command {
	var pod, since string
	var follow bool
	var f console.AuditFilter
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show the audit log: DNS queries and denied connections of pods",
		Long: `Shows the lines that the agents remember, the newest last, and with -f those that
come. With -o json they are as docs/audit.md says.`,
		Example: `  namegate audit -f --pod shop/cart-7d9f
  namegate audit -n shop --verdict denied,would-deny --since 5m`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := a.printer(cmd)
			if err != nil {
				return err
			}
			if f.Since, err = beginning(since, a.now()); err != nil {
				return &console.Misused{Err: err}
			}
			query, find, err := a.about(pod)
			if err != nil {
				return err
			}
			f.Namespace, f.Pod = query.Get("namespace"), query.Get("pod")
			l := &client.Lines{Filter: f, Agents: find, After: time.After, Take: p.Line, Ended: p.Warned}
			failed, err := l.Show(cmd.Context(), follow)
			if err != nil {
				return err
			}
			return p.Failed(failed)
		},
	}
	a.add(cmd)
	fl := cmd.Flags()
	fl.BoolVarP(&follow, "follow", "f", false, "go on with the lines that come, until Ctrl-C")
	fl.StringVar(&pod, "pod", "", "only this pod: NAME or NAMESPACE/NAME")
	fl.StringSliceVar(&f.Verdicts, "verdict", nil, "only these verdicts, such as denied or unmatched,refused")
	fl.StringSliceVar(&f.Kinds, "kind", nil, "only dns, or only flow")
	fl.StringVar(&since, "since", "", "only what was seen since: a duration such as 5m, or a time such as 2026-05-01T12:00:00Z")
	_ = cmd.RegisterFlagCompletionFunc("pod", a.completePod)
	_ = cmd.RegisterFlagCompletionFunc("verdict", cobra.FixedCompletions(console.Verdicts(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(console.Kinds(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}
