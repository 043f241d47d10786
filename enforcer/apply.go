package enforcer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/flows"
	"github.com/namegate/namegate/enforcer/plan"
	"github.com/namegate/namegate/enforcer/ruleset"
	"github.com/namegate/namegate/policy"
)

// Prepare makes the kernel ready for a snapshot without denying or taking back
// anything yet: the sets and chains of every pod of the last snapshot and of
// this one are in force, and grants of either are taken. Between Prepare and
// Commit the caller lets the proxy decide by Coming. On an error the
// kernel holds a part of it; Prepare may be called again, with any snapshot.
func (e *Enforcer) Prepare(ctx context.Context, s *policy.Snapshot) error {
	e.apply.Lock()
	defer e.apply.Unlock()
	s = e.withOrphans(s)
	for {
		refused, err := e.prepare(ctx, s)
		if err != nil {
			return e.close(ctx, err)
		}
		if len(refused) == 0 {
			return nil
		}
		s = s.Close(refused) // these rules make no grants any more: there are fewer each time
	}
}

// Coming returns what the last Prepare made ready: its snapshot, with the orphans that stay closed,
// and with the rules closed whose addresses could not be written for a pod.
func (e *Enforcer) Coming() *policy.Snapshot {
	e.apply.Lock()
	defer e.apply.Unlock()
	return e.coming
}

// prepare is Prepare for a snapshot. It returns the rules of pods that have to be closed.
func (e *Enforcer) prepare(ctx context.Context, s *policy.Snapshot) (refused map[policy.PodRef]map[policy.RuleID]string, err error) {
	abandoned := e.coming
	another := abandoned != e.snapshot && abandoned != s
	e.coming, e.next = s, nil
	if !another && e.peersAlone(s) && e.flows.Record() == nil && e.applyTables(ctx, e.plan, e.snapshot) == nil {
		return nil, nil // an error is tried, and told of, with all else
	}
	known := e.complete && s != e.snapshot && slices.Equal(s.PeerSets, e.snapshot.PeerSets)
	e.complete = false
	e.findHomes(s)
	e.lists.Prune()
	next := e.planOf(s)
	e.next = next
	if another {
		e.abandon(abandoned, s, next)
		if err := e.flows.Record(); err != nil {
			return nil, err
		}
	}
	subjects, names := plan.Union(e.plan, next, e.closed), known && e.plan.SameButNames(next)
	if !names { // else what is in force is all that the kernel needs
		if err := e.stage(ctx, subjects); err != nil {
			return nil, err
		}
	}
	if err := e.importGrants(); err != nil {
		return nil, err
	}
	if err := e.prepareEntries(ctx, subjects, s); err != nil {
		return nil, err
	}
	carried, err := e.carryOver(s)
	if err != nil {
		return nil, fmt.Errorf("prepare grants: %w", err)
	}
	e.unopened, e.complete = carried.Closed, names
	return carried.Refused, nil
}

// abandon notes what a snapshot allowed that was prepared and never came into force: what
// was opened by that, and the next one, with its plan, does not allow, is taken back with it.
func (e *Enforcer) abandon(s, by *policy.Snapshot, next dataplane.Subjects) {
	subjects := e.planOf(s)
	e.recheckLost(e.plan, s, by)
	e.recheckLost(subjects, s, by)
	e.recheckRemoved(by, subjects, next)
	for ref, p := range subjects {
		if n := next[ref]; n != nil && (!p.Peers.Within(n.Peers) || !p.Tiers.Same(n.Tiers)) {
			e.flows.Recheck(flows.PolicyChanged, slices.Concat(p.Addrs, n.Addrs))
		}
	}
}

// close brings into force who is default-deny in a coming plan, and nothing else
// of it: its pods must not stay open for as long as it cannot be prepared or committed.
// Pods that an earlier agent isolated stay at home and intercepted.
// They stay closed until a Commit brings their part of a snapshot into force. It returns
// the reason, with what failed in closing.
func (e *Enforcer) close(ctx context.Context, reason error) error {
	next := e.planOf(e.coming)
	for ref := range next {
		e.closed[ref] = true
	}
	now := e.plan
	if e.snapshot == nil {
		now = e.recovered.among(next)
	}
	subjects := plan.Union(now, next, e.closed)
	defer e.rightsLost()
	return errors.Join(reason, e.plane.Apply(ctx, e.state(subjects), dataplane.Isolate), e.applyTables(ctx, subjects, cmp.Or(e.snapshot, e.coming)))
}

// Commit brings the prepared snapshot into force: first who is default-deny and
// where it is at home, then what each pod may do, then interception; at last it
// takes back what the snapshot does not allow any more and cuts what that had
// opened.
func (e *Enforcer) Commit(ctx context.Context) error {
	_, err := e.CommitPart(ctx, nil)
	return err
}

// CommitPart is Commit, after which pods of waiting that were not default-deny before are
// not yet: what is prepared for them stays ready, and the next Commit may bring it into
// force. It returns the snapshot that is in force, nil before the first; in that one
// no pod waits, because an earlier agent may have isolated the pods already.
func (e *Enforcer) CommitPart(ctx context.Context, waiting map[policy.PodRef]bool) (*policy.Snapshot, error) {
	e.apply.Lock()
	defer e.apply.Unlock()
	s := e.coming
	if e.snapshot != nil {
		s = s.Defer(e.snapshot, waiting)
	}
	err := e.commit(ctx, s)
	return e.snapshot, err
}

// commit brings a snapshot into force: what is coming, or a part of that.
func (e *Enforcer) commit(ctx context.Context, s *policy.Snapshot) error {
	members, names := e.peersAlone(e.coming), e.complete
	e.complete = false
	defer e.rightsLost()
	if e.snapshot != nil {
		// The other dataplane's rules do not follow a change. Rules that cannot be removed open
		// nothing, and hold up no change.
		if err := e.endOther(ctx); err != nil {
			return e.close(ctx, err)
		}
	}
	ended := e.snapshot != nil && e.Coexisting()
	if ended {
		// The earlier agent's grants must fail from now on: nothing asks for them. endSwitch
		// reports its errors.
		_ = e.endSwitch(ctx)
	}
	if members {
		return e.commitPeers(ctx)
	}
	first := e.snapshot == nil
	written, err := e.bringIntoForce(ctx, s, names)
	if err != nil {
		return e.close(ctx, err)
	}
	failed := e.dropSets(written)
	entered := ruleset.RulesOf(written)
	// What was written holds no more than is wanted where no set of entries or grants goes.
	more := first || names || e.mode().HasGrants || !slices.Equal(entered, e.entered)
	e.entered = entered
	if err := e.shrink(ctx, written, more); err != nil {
		failed = errors.Join(failed, err)
	} else if !ended {
		_ = e.endDueSwitch(ctx) // it reports its errors
	}
	err = errors.Join(e.unopened, failed, e.flows.Run(e.judge()))
	// Refused sets hold up no snapshot: each comparison reports them and tries again.
	e.complete = err == nil && e.plane.refused == nil && s == e.coming
	return err
}

// bringIntoForce is commit but for the rights and sets that are taken back at last. It
// returns what was written: the plan, and what Prepare made ready beside it. After an
// error the last snapshot is in force still. names: but for names e.next is in force, if it is there.
func (e *Enforcer) bringIntoForce(ctx context.Context, s *policy.Snapshot, names bool) (dataplane.Subjects, error) {
	last, subjects := e.plan, e.next
	if subjects == nil || e.snapshot == nil {
		// Links may have changed since Prepare. Once a snapshot is in force, RunReconcile looks.
		e.findHomes(e.coming)
	}
	if e.next == nil || s != e.coming {
		subjects, names = e.planOf(s), false
	}
	e.next = nil
	if err := e.withdrawStale(s, subjects); err != nil {
		return nil, err
	}
	coming, judging := e.comingAddrs(last, subjects), last
	if e.snapshot == nil {
		judging = subjects
	}
	if err := e.admitOpen(coming, judging); err != nil {
		return nil, err
	}
	settle, err := e.admitToComing(s, last, subjects)
	if err != nil {
		return nil, err
	}
	gone := slices.Collect(maps.Keys(plan.Removed(last, subjects)))
	e.recheckAdmitted(last, coming)
	e.recheckChanged(s, last, subjects)
	stale := e.plane.StalePods()
	for ref, p := range subjects {
		// An earlier agent granted by a set of the pod that no policy needs any more: its members are not
		// known, and the connections that they allowed are to be cut.
		if len(stale) > 0 && stale[dataplane.PodID(ref)] {
			e.flows.Recheck(flows.PolicyChanged, p.Addrs)
		}
	}
	written := e.beside(s, subjects)
	if err := e.recheckPeers(ctx, written, s); err != nil {
		return nil, err
	}
	if err := e.flows.Record(gone...); err != nil {
		return nil, err
	}
	if e.recovered.reused(subjects) {
		e.plane.leave()
	}
	if err := e.isolateQuietly(ctx, s, written, coming); err != nil {
		return nil, err
	}
	if names {
		err = settle()
	} else {
		err = e.write(ctx, written, s, settle)
	}
	if err != nil {
		return nil, err
	}
	e.recheckRemoved(s, last, subjects)
	e.recheckRemote(s, subjects)
	e.snapshot, e.plan, e.recovered = s, subjects, recoveredState{}
	e.committed.Store(true)
	e.noteRenewing(s)
	// Pods that a failure closed stay closed until they are committed too.
	maps.DeleteFunc(e.closed, func(ref policy.PodRef, _ bool) bool {
		return s == e.coming || subjects[ref] != nil && subjects[ref].Isolated
	})
	return written, nil
}

// write makes sets, nets, chains and interception hold a plan, by a snapshot that is in force or comes into force.
// settle comes as soon as the tables judge by it; nil: all is settled.
func (e *Enforcer) write(ctx context.Context, subjects dataplane.Subjects, s *policy.Snapshot, settle func() error) error {
	var begin []netip.Addr
	if settle != nil {
		begin = e.beginning(subjects)
	}
	if e.snapshot != nil && e.snapshot != s && (haveTiers(subjects) || haveIngress(subjects)) {
		// What no rule denies is allowed: the second net must not ask before the judge does, nor after it.
		if remaining, ends := plan.Remaining(e.plan, subjects, e.closed); ends {
			if err := e.plane.Apply(ctx, e.state(remaining), dataplane.Isolate); err != nil {
				return err
			}
		}
		if err := e.judgeBy(ctx, subjects, s, begin, settle); err != nil {
			return err
		}
		return e.plane.Apply(ctx, e.state(subjects), dataplane.Commit)
	}
	failed := e.plane.Apply(ctx, e.state(judgedBefore(subjects, begin)), dataplane.Commit)
	err := e.judgeBy(ctx, subjects, s, begin, settle)
	if len(begin) > 0 && err == nil {
		err = e.plane.Apply(ctx, e.state(subjects), dataplane.Commit)
	}
	return errors.Join(failed, err)
}

// judgeBy has the tables judge by a plan. Where rules for ingress begin, a reply that is under way may be to a
// connection without an admission: none is dropped before settle.
func (e *Enforcer) judgeBy(ctx context.Context, subjects dataplane.Subjects, s *policy.Snapshot, begin []netip.Addr, settle func() error) error {
	if err := e.applyTables(ctx, subjects, s, begin...); err != nil {
		return err
	}
	e.intercept.Begin() // the rest may take longer than the dead-man switch holds
	if settle == nil {
		return nil
	}
	if err := settle(); err != nil || len(begin) == 0 {
		return err
	}
	return e.applyTables(ctx, subjects, s)
}

// stage makes the names of subjects ready, and their rules in the tables. The tables of an earlier agent stay as
// they are until the first state, which replaces them whole.
func (e *Enforcer) stage(ctx context.Context, subjects dataplane.Subjects) error {
	if err := e.readPeers(ctx, subjects); err != nil {
		return err
	}
	if err := e.plane.Apply(ctx, e.state(subjects), dataplane.Prepare); err != nil || e.recovered.Tables {
		return err
	}
	return e.applyTables(ctx, subjects, e.snapshot)
}

// shrink removes what a plan in force does not need from the dataplane and, with tables, from these.
func (e *Enforcer) shrink(ctx context.Context, subjects dataplane.Subjects, tables bool) error {
	if tables {
		if err := e.applyTables(ctx, subjects, e.snapshot); err != nil {
			return err
		}
	}
	return e.plane.Apply(ctx, e.state(subjects), dataplane.Shrink)
}
