package agent

import (
	"path/filepath"
	"time"

	"github.com/namegate/namegate/agent/safeguard"
)

// safeguardPeriod is how often the times of unconfirmed policies are compared with the clock, which
// are minutes.
const safeguardPeriod = time.Second

// newSafeguard returns the safeguard of policies for this node. Its file is beside the agent's
// socket, where the next agent finds it.
func (a *agent) newSafeguard() *safeguard.Guard {
	away := func() time.Duration { return 0 } // a folder is always there
	if a.cluster != nil {
		away = a.cluster.away
	}
	return safeguard.New(safeguard.Options{
		File: filepath.Join(filepath.Dir(a.o.Socket), "safeguard.json"), Boot: safeguard.BootID(), Now: safeguard.Monotonic, Away: away, Log: a.log,
	})
}

// checkSafeguard has the last state compiled again where the time of a policy is over.
func (a *agent) checkSafeguard() {
	if a.safeguard.Due() {
		a.rollout.Recompile()
	}
}
