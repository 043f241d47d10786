package enforcer

import (
	"context"
	"errors"

	"github.com/namegate/namegate/policy"
)

// Most changes of pods in a cluster make snapshots that differ only in the members of
// peers. All else is unchanged then, and only the difference of the peer sets is written.

// peersAlone tells whether a snapshot differs from the one in force in its peer sets
// alone, and whether the commit of that one is complete. The same snapshot once more is
// prepared completely.
func (e *Enforcer) peersAlone(s *policy.Snapshot) bool {
	return e.complete && s != e.snapshot && !haveTiers(e.plan) && s.SameButPeers(e.snapshot)
}

// commitPeers is Commit for such a snapshot.
func (e *Enforcer) commitPeers(ctx context.Context) error {
	e.recheckLost(e.plan, e.snapshot, e.coming)
	e.recheckRemote(e.coming, e.plan)
	if err := e.flows.Record(); err != nil {
		return err
	}
	for _, p := range e.plan {
		p.Snapshot = e.coming
	}
	e.snapshot = e.coming
	err := errors.Join(e.shrink(ctx, e.plan, true), e.flows.Run(e.judge()))
	_ = e.endDueSwitch(ctx) // it reports its errors
	e.complete = err == nil
	return err
}
