package main

import (
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/namegate/namegate/agent"
)

func uninstallCommand() *cobra.Command {
	var o agent.Cluster
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove the agents' objects from the API server, before the agents are removed",
		Long: "Remove the agents' objects from the API server: the nodes' leases.\n" +
			"The chart runs it before it removes the agents; those remove their rules from their nodes as they end.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return agent.Uninstall(cmd.Context(), o, slog.Default()) },
	}
	fl := cmd.Flags()
	fl.StringVar(&o.Kubeconfig, "kubeconfig", "", "how to reach the API server (default: as a pod of the cluster)")
	fl.StringVar(&o.Namespace, "namespace", "", "the namespace that Namegate is installed in")
	fl.StringVar(&o.DaemonSet, "daemonset", "", "the agents' DaemonSet, which is marked so that they write nothing again")
	return cmd
}
