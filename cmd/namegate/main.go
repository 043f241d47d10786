// Command namegate is the node agent and its tools.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/namegate/namegate/console/cli"
)

// version is set by the linker.
var version = "dev"

func main() { os.Exit(cli.Main(root())) }

// root returns the commands for people and the agent's.
func root() *cobra.Command {
	cmd := cli.New(version)
	cmd.AddCommand(agentCommand(), healthCommand(), uninstallCommand(), cleanupCommand())
	return cmd
}
