package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/namegate/namegate/console"
)

// New returns the command namegate, which asks the agent of its node.
func New(version string) *cobra.Command {
	return root(version, asking{now: time.Now})
}

// NewPlugin returns the same commands under kubectl's name, which ask the agents of a
// cluster.
func NewPlugin(version string) *cobra.Command {
	a := asking{now: time.Now}
	a.reach.kube = true
	cmd := root(version, a)
	cmd.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl namegate"}
	return cmd
}

// root returns the command with its questions; a has their defaults.
func root(version string, a asking) *cobra.Command {
	cmd := &cobra.Command{
		Use:           "namegate",
		Short:         "Node-local FQDN egress gateway for Kubernetes",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.AddCommand(statusCommand(a), podsCommand(a), grantsCommand(a), explainCommand(a), auditCommand(a), suggestCommand(a), uiCommand(a), checkCommand(a), convertCommand())
	return cmd
}

// Main runs the program's command line until it ends or is interrupted, and returns the
// exit code.
func Main(cmd *cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return Execute(ctx, cmd, os.Stderr)
}

// Execute runs a command line and returns the exit code. What went wrong is one line.
func Execute(ctx context.Context, cmd *cobra.Command, errs io.Writer) int {
	began := false
	cmd.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		err := errors.Join(cmd.ValidateRequiredFlags(), cmd.ValidateFlagGroups()) // else cobra asks after this
		began = err == nil
		return err
	}
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
