package main

import (
	"github.com/spf13/cobra"

	"github.com/namegate/namegate/agent/health"
)

func healthCommand() *cobra.Command {
	var socket string
	var live, ready bool
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Answer a probe: exit code 0 if the agent of this socket is well",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for path, asked := range map[string]bool{"/live": live, "/ready": ready} {
				if !asked {
					continue
				}
				if err := health.Probe(cmd.Context(), socket, path); err != nil {
					return err
				}
			}
			return nil
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&socket, "socket", "", "the agent's --health-socket")
	fl.BoolVar(&live, "live", false, "fail if the agent should be started anew")
	fl.BoolVar(&ready, "ready", false, "fail if the agent does not do its work")
	cmd.MarkFlagsOneRequired("live", "ready")
	_ = cmd.MarkFlagRequired("socket")
	return cmd
}
