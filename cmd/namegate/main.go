// Command namegate is the node agent and its tools.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/namegate/namegate/console"
)

// version is set by the linker.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(execute(ctx, root(filepath.Base(os.Args[0])), os.Stderr))
}

// execute runs a command line and returns the exit code. What went wrong is one line.
func execute(ctx context.Context, cmd *cobra.Command, errs io.Writer) int {
	began := false
	watch(cmd, func() { began = true })
	err := cmd.ExecuteContext(ctx)
	var answered *console.Answered
	switch {
	case err == nil:
		return 0
	case !began:
		// Nothing of a command has run: it is the command line that is wrong.
		err = &console.Misused{Err: fmt.Errorf("%w; `%s --help` says what there is", err, cmd.DisplayName())}
	case errors.As(err, &answered):
		return answered.Code
	}
	// Some of it is what an agent said, or stood in a file.
	fmt.Fprintln(errs, "namegate: "+console.OneLine(err.Error()))
	return console.ExitCode(err)
}

// watch calls began when a command of the tree begins its work.
func watch(cmd *cobra.Command, began func()) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			began()
			return run(cmd, args)
		}
	}
	for _, c := range cmd.Commands() {
		watch(c, began)
	}
}

// root makes the command of a program: all there is, or, as kubectl's plugin, what
// is for people.
func root(program string) *cobra.Command {
	cmd := &cobra.Command{
		Use:           "namegate",
		Short:         "Node-local FQDN egress gateway for Kubernetes",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.AddCommand(statusCommand(), podsCommand(), grantsCommand(), explainCommand(), auditCommand(), suggestCommand(), checkCommand())
	if isPlugin(program) {
		cmd.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl namegate"}
		return cmd
	}
	cmd.AddCommand(agentCommand(), healthCommand(), uninstallCommand(), cleanupCommand())
	return cmd
}
