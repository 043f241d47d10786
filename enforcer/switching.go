package enforcer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/namegate/namegate/enforcer/dataplane"
)

// Other is a dataplane that an earlier agent may have used.
type Other struct {
	// Left tells whether such an agent left objects.
	Left func(ctx context.Context) (bool, error)
	// New makes the dataplane.
	New func(dataplane.Owner) dataplane.Interface
	// Unreadable: the node lacks programs. The objects can be removed, and nothing else.
	Unreadable bool
}

// switching is a dataplane that takes over from the other one. The other's rules stay in
// force, beside its own, until the agent before this one has granted by them for the last
// time: until then an answer of either agent opens its addresses.
type switching struct {
	dataplane.Interface
	// other is the other one, nil where an earlier agent left nothing of it. It does not change any more
	// once it counts: the tables decide by it too.
	other  dataplane.Interface
	counts atomic.Bool
	// The fields from here on belong to the holder of apply. remains: there are objects to remove,
	// early: although the earlier agent is there.
	remains, early bool
	// refused is the last Apply's error that concerns some pods alone.
	refused error
}

// Apply implements dataplane.Interface. An error that concerns some pods alone holds up nothing: it is
// kept in refused.
func (s *switching) Apply(ctx context.Context, st dataplane.State, to dataplane.Phase) error {
	err := s.Interface.Apply(ctx, st, to)
	if to == dataplane.Isolate || to == dataplane.Shrink {
		return err
	}
	s.refused = nil
	if refused := (dataplane.Refused{}); errors.As(err, &refused) {
		s.refused, err = err, nil
	}
	return err
}

// leave has the tables decide without the other dataplane, by the next write.
func (s *switching) leave() {
	s.early = true
	s.counts.Store(false)
}

// ApplyGrants implements dataplane.Interface. What is taken back goes from both; answers of
// this agent come when its own rules are in force.
func (s *switching) ApplyGrants(ops []dataplane.GrantOp) {
	s.Interface.ApplyGrants(ops)
	for i := range ops {
		if !ops[i].Remove || !s.counts.Load() {
			continue
		}
		theirs := []dataplane.GrantOp{{Set: s.other.Named(ops[i].Set), Remove: true, Grants: ops[i].Grants}}
		s.other.ApplyGrants(theirs)
		if err := theirs[0].Err; err != nil && !dataplane.IsNoSet(err) && ops[i].Err == nil {
			ops[i].Err = err
		}
	}
}

// findOther looks for objects of the other dataplane. The caller holds apply.
func (e *Enforcer) findOther(ctx context.Context) error {
	other := e.k.Other
	if other == nil || e.plane.other != nil {
		return nil
	}
	left, err := other.Left(ctx)
	if err != nil || !left {
		return err
	}
	counts := !other.Unreadable
	if counts && !e.mode().Candidates {
		// An earlier agent could not remove the objects. They hold the policies of the switch.
		ended, err := e.tablesInForce().IgnoreCandidates(ctx)
		if err != nil {
			return err
		}
		counts = !ended
	}
	e.plane.other, e.plane.remains = other.New(e.owner), true
	e.plane.counts.Store(counts)
	e.log.Info("an earlier agent used the other dataplane; its rules stay in force until this agent's are and that agent has ended")
	return nil
}

// importGrants takes over the grants of the other dataplane. The caller holds apply.
func (e *Enforcer) importGrants() error {
	if !e.plane.counts.Load() {
		return nil
	}
	if err := e.grants.Import(e.plane.other); err != nil {
		return fmt.Errorf("take over the grants of the other dataplane: %w", err)
	}
	return nil
}

// endSwitch ends the other dataplane's part, and removes everything of it. This agent's rules
// are in force; the caller holds apply. An error is reported as a deviation, and comparisons
// try again.
func (e *Enforcer) endSwitch(ctx context.Context) error {
	err := e.endOther(ctx)
	if !e.plane.remains {
		return nil
	}
	if err == nil {
		_, err = e.plane.other.Remove(ctx)
	}
	if err != nil {
		err = fmt.Errorf("remove what the other dataplane holds: %w", err)
		e.drift.report(fromSwitch, e.now(), err, "other dataplane")
		e.suspect()
		return err
	}
	e.drift.report(fromSwitch, e.now(), nil)
	e.plane.remains = false
	e.log.Info("removed the rules and sets of the other dataplane")
	return nil
}

// endDueSwitch is endSwitch once no agent writes by the other dataplane.
func (e *Enforcer) endDueSwitch(ctx context.Context) error {
	if !e.plane.early && e.Coexisting() {
		return nil
	}
	return e.endSwitch(ctx)
}

// endOther takes over the last grants of the other dataplane, and has the tables decide without
// it. Its objects open nothing from then on: a rule that is left makes candidates, which the
// tables do not ask for.
func (e *Enforcer) endOther(ctx context.Context) error {
	if !e.plane.remains {
		return nil
	}
	if err := e.importGrants(); err != nil {
		return err
	}
	e.plane.leave()
	return e.applyTables(ctx, e.inForce(), e.snapshot)
}
