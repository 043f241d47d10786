package main

import (
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/namegate/namegate/agent"
)

func cleanupCommand() *cobra.Command {
	var o agent.Options
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove every rule, set, table and address of Namegate from this node",
		Long: "Remove every rule, set, table and address of Namegate from this node.\n" +
			"Afterwards nothing is denied and DNS goes to the resolver. Stop the agent first.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Log = slog.Default()
			return agent.Cleanup(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.Corefile, "config", defaultConfig, "the Corefile; without it the defaults count")
	cmd.Flags().StringVar(&o.Socket, "socket", defaultSocket, "unix socket of the agent")
	cmd.Flags().StringVar(&o.IPTables, "iptables", "", "iptables variant: legacy or nft (default: what the host uses)")
	return cmd
}
