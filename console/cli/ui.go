package cli

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/client"
	"github.com/namegate/namegate/console/web"
	"github.com/namegate/namegate/policy/fqdn"
)

func uiCommand(a asking) *cobra.Command {
	var port uint16
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Serve a live page of workloads, names and denials on this machine",
		Long: `Serves a page on 127.0.0.1 and prints its address, until Ctrl-C. The page shows what
the other commands print, live: workloads and the names that they reach or are denied,
the audit log, grants, policies and nodes. The agents are asked with your own rights.
The address has a token, which gives these rights: keep it to yourself.`,
		Example: `  namegate ui
  kubectl namegate ui -n shop
  kubectl namegate ui -A --port 9955`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.ui(cmd, port) },
	}
	a.reach.add(cmd.Flags())
	cmd.Flags().Uint16Var(&port, "port", 0, "port of the page (default: one that is free)")
	_ = cmd.RegisterFlagCompletionFunc("namespace", a.completeNamespaces)
	return cmd
}

func (a *asking) ui(cmd *cobra.Command, port uint16) error {
	scope, err := a.reach.scope()
	if err != nil {
		return err
	}
	find := func(ctx context.Context) ([]client.Agent, error) { return a.reach.agents(ctx, "") }
	// A wrong flag, or a cluster that does not know the caller, is better said here than on the page.
	agents, err := find(cmd.Context())
	if err != nil {
		return err
	}
	cluster := ""
	if !a.reach.kube {
		if _, _, err := client.Gather[console.Status](cmd.Context(), agents, console.StatusPath, nil); err != nil {
			return err
		}
	} else if a.reach.known != nil {
		cluster = a.reach.known.Context()
	}
	guard := defaultGuard()
	return web.Serve(cmd.Context(), web.Options{
		Context: cluster, Namespace: scope, Version: cmd.Root().Version, Agents: find, About: a.found,
		Guard: func(n fqdn.Name, addr netip.Addr) string { return guard.Blocked(n, addr, nil) },
		Now:   time.Now, After: time.After,
	}, port, func(address string) {
		fmt.Fprintf(cmd.OutOrStdout(), "%s\n", address)
		fmt.Fprintln(cmd.ErrOrStderr(), "namegate: open this address in a browser of this machine; Ctrl-C ends the page")
	})
}
