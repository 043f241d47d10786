package smoke

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/namegate/namegate/e2e/cluster"
)

// real is the cluster that all scenarios of a run share.
var real *cluster.Cluster

func TestMain(m *testing.M) {
	os.Exit(func() int {
		keep := os.Getenv("KEEP") != ""
		var err error
		if real, err = open(keep); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		code := m.Run()
		if code != 0 {
			if err := real.Dump(); err != nil {
				fmt.Fprintln(os.Stderr, "dump the cluster:", err)
			}
			fmt.Fprintln(os.Stderr, "logs and the state of the cluster are in", real.LogFolder())
		}
		if os.Getenv("HAND_OVER") != "" {
			real.Leave()
			return code
		}
		if keep {
			real.Leave()
			fmt.Fprintln(os.Stderr, "the cluster still stands: bin/cluster/stand kubectl …; make e2e-clean removes it")
			return code
		}
		if err := real.Down(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}())
}

// open returns the cluster that stands, if one may be kept, else a new one.
func open(keep bool) (*cluster.Cluster, error) {
	if keep {
		if c, err := cluster.Attach(); err == nil {
			return c, nil
		}
	}
	return cluster.Up(context.Background())
}
