package main

import (
	"errors"
	"log/slog"
	"os"

	"github.com/namegate/namegate/enforcer"
	"github.com/namegate/namegate/kernel/inject"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/spf13/cobra"
)

func cleanupCommand() *cobra.Command {
	var config, socket, variant string
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove every rule, set, table and address of Namegate from this node",
		Long: "Remove every rule, set, table and address of Namegate from this node.\n" +
			"Afterwards nothing is denied and DNS goes to the resolver. Stop the agent first.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Geteuid() != 0 {
				return errors.New("cleanup needs root (CAP_NET_ADMIN); run it as root")
			}
			// Without a Corefile that can be read, the defaults say what to look for.
			c, err := corefile.Load(config)
			if err != nil {
				c = corefile.Default()
			}
			release, err := claim(socket, namespaceLock)
			if err != nil {
				return err
			}
			defer release()
			k, err := openKernel(c.Mark, variant)
			if err != nil {
				return err
			}
			defer k.close()
			e, err := enforcer.New(enforcerConfig(c), k.Kernel, nil, slog.Default())
			if err != nil {
				return err
			}
			return errors.Join(e.Cleanup(cmd.Context()), inject.Remove())
		},
	}
	cmd.Flags().StringVar(&config, "config", defaultConfig, "the Corefile; without it the defaults count")
	cmd.Flags().StringVar(&socket, "socket", defaultSocket, "unix socket of the agent")
	cmd.Flags().StringVar(&variant, "iptables", "", "iptables variant: legacy or nft (default: what the host uses)")
	return cmd
}
