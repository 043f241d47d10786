package main

import (
	"time"

	"context"

	"github.com/spf13/cobra"
	"log/slog"

	"github.com/namegate/namegate/status"
)

// uninstallTime bounds the hook: an uninstall must not hang on the API server.
const uninstallTime = time.Minute

func uninstallCommand() *cobra.Command {
	var f clusterFlags
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove from the API server what the agents wrote, before they are removed",
		Long: "Remove from the API server what the agents wrote: companion NetworkPolicies and the nodes' leases.\n" +
			"The chart runs it before it removes the agents; those remove their rules from their nodes as they end.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), uninstallTime)
			defer cancel()
			c, err := f.connect()
			if err != nil {
				return err
			}
			r, err := status.New(status.Options{Client: c, Dynamic: c.dynamic, Namespace: f.namespace, DaemonSet: f.daemonSet, Log: slog.Default()})
			if err != nil {
				return err
			}
			return r.Withdraw(ctx)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.kubeconfig, "kubeconfig", "", "how to reach the API server (default: as a pod of the cluster)")
	fl.StringVar(&f.namespace, "namespace", "", "the namespace that Namegate is installed in")
	fl.StringVar(&f.daemonSet, "daemonset", "", "the agents' DaemonSet, which is marked so that they write nothing again")
	return cmd
}
