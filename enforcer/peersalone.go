package enforcer

import "github.com/namegate/namegate/policy"

// Pods come, go and change their labels all day, anywhere in the cluster: then snapshots
// differ in who the peers are, and in nothing else. Chains, tables and all other sets
// hold already what they should, and only the difference of the peer sets is written.

// peersAlone tells whether a snapshot differs from the one in force in its peer sets
// alone, and nothing of that one is owed. The same once more has all looked at again.
func (e *Enforcer) peersAlone(s *policy.Snapshot) bool {
	return e.phase >= membersPrepared && s != e.snapshot && !e.plane.Refused() && !haveTiers(e.plan) && s.SameButPeers(e.snapshot)
}

// preparePeers is Prepare for such a snapshot, and tells whether that is done.
func (e *Enforcer) preparePeers(s *policy.Snapshot) bool {
	// An error is tried, and told of, with all else.
	if !e.peersAlone(s) || e.plane.StageMembers(e.state(e.plan)) != nil {
		return false
	}
	e.phase = membersPrepared
	return true
}

// commitPeers is Commit for such a snapshot.
func (e *Enforcer) commitPeers() error {
	for _, p := range e.plan {
		p.Snapshot = e.coming
	}
	e.snapshot = e.coming
	if err := e.dropPeers(e.plan); err != nil {
		return err
	}
	if err := e.plane.DestroyStale(); err != nil { // what another program asked until now
		return err
	}
	err := e.flows.Run(e.judge())
	if err == nil {
		e.phase = inForce
	}
	return err
}
