package agent

import (
	"context"
	"path/filepath"
	"time"

	"github.com/namegate/namegate/agent/safeguard"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/nnp"
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

// holdPeriod is how often the agent holds the policies for the node that wait for confirmation.
const holdPeriod = layout.UnconfirmedTimeout / 6

// holdUnconfirmed has the kernel enforce the policies for the node that wait for confirmation: without
// this agent they end after layout.UnconfirmedTimeout. A policy whose time is over ends so too where a
// roll-out without it fails or hangs.
func (a *agent) holdUnconfirmed(ctx context.Context, inForce *policy.Snapshot) {
	if v := inForce.Node(); v == nil || v.Confirmed == nil || a.enforcesLate(v) {
		return
	}
	if err := a.kernel.tables().HoldUnconfirmed(ctx); err != nil && ctx.Err() == nil {
		a.log.Error("policies for the node that wait for confirmation end within a minute unless this succeeds", "error", err)
	}
}

// enforcesLate tells whether a view of the node enforces a policy whose time is over.
func (a *agent) enforcesLate(v *policy.View) bool {
	turned := a.safeguard.Turned()
	for r := range v.Traffic.All() {
		name, _ := nnp.Name(r.Policy)
		if _, is := turned[name]; is && !r.Audit {
			return true
		}
	}
	return false
}

// keepUnconfirmed holds the policies in force that wait for confirmation, until ctx ends.
func (a *agent) keepUnconfirmed(ctx context.Context) {
	every(ctx, holdPeriod, func() { a.holdUnconfirmed(ctx, a.rollout.Status().InForce) })
}
