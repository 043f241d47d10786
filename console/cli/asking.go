package cli

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/client"
	"github.com/namegate/namegate/console/print"
)

// asking is what the commands have in common: which agents they ask, and how they print
// the answers.
type asking struct {
	reach   reach
	output  string
	noColor bool
	now     func() time.Time
}

// add adds the flags.
func (a *asking) add(cmd *cobra.Command) {
	a.reach.add(cmd.Flags())
	cmd.Flags().StringVarP(&a.output, "output", "o", print.FormatTable, strings.Join(print.Formats(), ", "))
	cmd.Flags().BoolVar(&a.noColor, "no-color", false, "no colours, as where NO_COLOR is set or the output is no terminal")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(print.Formats(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("namespace", a.completeNamespaces)
}

// printer returns how the command prints.
func (a *asking) printer(cmd *cobra.Command) (*print.Printer, error) {
	p := &print.Printer{
		Out: cmd.OutOrStdout(), Warn: cmd.ErrOrStderr(), Format: a.output, Now: a.now,
		Colour: coloured(cmd.OutOrStdout(), a.noColor, os.Getenv),
	}
	return p, print.CheckFormat(a.output)
}

// coloured tells whether words on out may have colours: on a terminal that can show
// them, unless that is unwanted. Source of NO_COLOR: https://no-color.org.
func coloured(out io.Writer, unwanted bool, env func(string) string) bool {
	f, ok := out.(*os.File)
	return ok && !unwanted && env("NO_COLOR") == "" && env("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

// about reads which pod a command is about, "" for all of the scope, and returns
// what to ask, and how to find whom.
func (a *asking) about(pod string) (q url.Values, find func(context.Context) ([]client.Agent, error), err error) {
	if node, is := strings.CutPrefix(pod, "node/"); is && a.reach.namespace == "" {
		return url.Values{"node": {node}}, func(ctx context.Context) ([]client.Agent, error) { return a.reach.agentsOf(ctx, node, "", "") }, nil
	}
	scope, err := a.reach.scope()
	if err != nil {
		return nil, nil, err
	}
	q = url.Values{}
	if pod != "" {
		if strings.Contains(pod, "/") && a.reach.namespace == "" {
			scope = "" // the pod's own
		}
		ns, name, err := console.PodName(scope, pod)
		if err != nil {
			return nil, nil, &console.Misused{Err: err}
		}
		if scope, pod = ns, name; ns != "" {
			pod = ns + "/" + name
		}
		q.Set("pod", pod)
	}
	if scope != "" {
		q.Set("namespace", scope)
	}
	return q, func(ctx context.Context) ([]client.Agent, error) { return a.reach.agents(ctx, pod) }, nil
}

// found is about with whom to ask.
func (a *asking) found(ctx context.Context, pod string) ([]client.Agent, url.Values, error) {
	q, find, err := a.about(pod)
	if err != nil {
		return nil, nil, err
	}
	agents, err := find(ctx)
	return agents, q, err
}

func podsCommand(a asking) *cobra.Command {
	return rowsCommand(&a, console.PodsPath, (*print.Printer).Pods, &cobra.Command{
		Use:   "pods [POD]",
		Short: "List pods, the policies that select them, and obstacles to enforcement",
		Example: `  namegate pods -n shop
  namegate pods shop/cart-7d9f -o wide`,
	})
}

func grantsCommand(a asking) *cobra.Command {
	return rowsCommand(&a, console.GrantsPath, (*print.Printer).Grants, &cobra.Command{
		Use:   "grants [POD|node/NODE]",
		Short: "List open addresses with pod, name and remaining time",
		Example: `  namegate grants shop/cart-7d9f
  namegate grants -n shop -o json`,
	})
}

// rowsCommand makes a command that asks for the rows of a pod, or of all in the scope, and prints them.
func rowsCommand[T any](a *asking, path string, show func(*print.Printer, []T, int) error, cmd *cobra.Command) *cobra.Command {
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 1 {
			return fmt.Errorf("one POD at most, not %d", len(args))
		}
		return nil
	}
	cmd.ValidArgsFunction = a.completePod
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := a.printer(cmd)
		if err != nil {
			return err
		}
		pod := ""
		if len(args) > 0 {
			pod = args[0]
		}
		agents, query, err := a.found(cmd.Context(), pod)
		if err != nil {
			return err
		}
		answers, failed, err := client.Gather[T](cmd.Context(), agents, path, query)
		if err != nil {
			return err
		}
		if err := show(p, answers, len(agents)); err != nil {
			return err
		}
		return p.Failed(failed)
	}
	a.add(cmd)
	return cmd
}
