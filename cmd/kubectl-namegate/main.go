// Command kubectl-namegate is kubectl's command `namegate`: the commands for people, which
// ask the agents of a cluster.
package main

import (
	"os"

	"github.com/namegate/namegate/console/cli"
)

// version is set by the linker.
var version = "dev"

func main() { os.Exit(cli.Main(cli.NewPlugin(version))) }
