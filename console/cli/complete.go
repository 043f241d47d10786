package cli

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/client"
)

// completeTime is how long a shell may wait for its words.
const completeTime = 2 * time.Second

// rows asks for the existing pods for a shell's completion, which shows no errors.
func (a *asking) rows(ctx context.Context) (pods []console.PodRow) {
	ctx, cancel := context.WithTimeout(ctx, completeTime)
	defer cancel()
	agents, query, err := a.found(ctx, "")
	if err != nil {
		return nil
	}
	answers, _, err := client.Gather[console.PodRows](ctx, agents, console.PodsPath, query)
	if err != nil {
		return nil
	}
	for _, a := range answers {
		pods = append(pods, a.Pods...)
	}
	return pods
}

// completePod offers pods: their names in a namespace, and with their namespaces in
// all.
func (a *asking) completePod(cmd *cobra.Command, args []string, _ string) (words []cobra.Completion, _ cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, p := range a.rows(ctxOf(cmd)) {
		word := p.Namespace + "/" + p.Name
		if a.reach.namespace != "" {
			word = p.Name
		}
		words = append(words, word)
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}

// completeNamespaces offers the namespaces of pods.
func (a *asking) completeNamespaces(cmd *cobra.Command, _ []string, _ string) (words []cobra.Completion, _ cobra.ShellCompDirective) {
	a.reach.namespace = ""
	for _, p := range a.rows(ctxOf(cmd)) {
		words = append(words, p.Namespace)
	}
	slices.Sort(words)
	return slices.Compact(words), cobra.ShellCompDirectiveNoFileComp
}

// ctxOf returns the command's context: one that completes may have none.
func ctxOf(cmd *cobra.Command) context.Context {
	if ctx := cmd.Context(); ctx != nil {
		return ctx
	}
	return context.Background()
}
