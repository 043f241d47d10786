package enforcer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/flows"
	"github.com/namegate/namegate/enforcer/grants"
	"github.com/namegate/namegate/enforcer/plan"
	"github.com/namegate/namegate/enforcer/ruleset"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/policy"
)

const (
	// checkEvery is how often the kernel is compared with the wanted state, besides when
	// something tells of a change.
	checkEvery = 5 * time.Second
	// settleAfter is how long links have to settle that have changed.
	settleAfter = 200 * time.Millisecond
	// fullCheckEvery is in how many checks tables of rules are read that show no change:
	// thousands of rules take half a second of a core.
	fullCheckEvery = 12
	// firstCheck is after how long the first write is compared.
	firstCheck = time.Second
	// repairPause is how long another program has its way after a repair; one that
	// comes again within twice the pause doubles it, up to checkEvery.
	repairPause = 100 * time.Millisecond
	// changeRest is how many times as long as a look took there is none for changes of the nft
	// tables: every grant there is a change, and where other programs change nftables all the
	// time none can be told from theirs.
	changeRest = 9
)

// RunReconcile keeps the kernel in the wanted state until ctx ends. It looks for homes
// when links change. It compares the kernel with the wanted state at once where the
// kernel tells of a change, where Changed shows one and after a failed write, and else
// every few seconds. What deviates is reported at once and repaired at once, but ever
// more slowly where it is changed again and again.
func (e *Enforcer) RunReconcile(ctx context.Context) error {
	lost := func(err error) {
		e.log.Error("events of the kernel are lost; subscribing again", "error", err)
	}
	events, err := e.k.Links.Watch(ctx, lost)
	if err != nil {
		return fmt.Errorf("watch links: %w", err)
	}
	changes, err := e.k.Tables.Watch(ctx, layout.Concerns, lost)
	if err != nil {
		return fmt.Errorf("watch nft tables: %w", err)
	}
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	suspect := time.NewTicker(dataplane.PollEvery)
	defer suspect.Stop()
	again := planned{time.After(firstCheck)}
	var suspicion, changed <-chan time.Time // nil: neither waits for a look
	var rest rest
	var r, search, doubt repairs
	look := func(all bool) {
		all = again.replaced(all)
		wait := r.wait(time.Now())
		before := e.repairs.Load()
		err := e.reconcile(ctx, all, wait == 0)
		if failed := err != nil && wait == 0; failed || e.repairs.Load() > before {
			r.made(time.Now())
		}
		if err != nil {
			again.look = time.After(max(r.wait(time.Now()), repairPause))
		}
	}
	for n := 1; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			look(n%fullCheckEvery == 0)
			n++
		case <-again.look:
			look(true)
		case <-e.suspected:
			if suspicion == nil {
				suspicion = time.After(doubt.wait(time.Now()))
			}
		case <-suspicion:
			suspicion = nil
			doubt.made(time.Now())
			look(true)
		case <-changes:
			if changed == nil {
				changed = time.After(rest.wait(time.Now()))
			}
		case <-changed:
			changed = nil
			if e.k.Tables.ExternalChange() {
				began, repairs := time.Now(), e.repairs.Load()
				look(true)
				rest.looked(began, time.Now(), e.repairs.Load() > repairs)
			}
		case <-suspect.C:
			if again.look == nil && e.touched() {
				look(false)
			}
			e.recheckDue(ctx)
			// Nothing tells when a pod gets the address that a bridge port is looked for by.
			if search.wait(time.Now()) == 0 && e.astray() {
				search.made(time.Now())
				e.settleHomes(ctx)
			}
		case <-events:
			e.settleHomes(ctx)
			// Links change in bursts: one look for each.
			select {
			case <-ctx.Done():
			case <-time.After(settleAfter):
			}
		}
	}
}

// planned is a look at everything that is going to be.
type planned struct {
	look <-chan time.Time // nil: none is planned
}

// replaced has a look take the place of the planned one, and tells whether it is at everything:
// what a planned look is for may show in no other.
func (p *planned) replaced(all bool) bool {
	all = all || p.look != nil
	p.look = nil
	return all
}

func (e *Enforcer) settleHomes(ctx context.Context) {
	if err := e.resettle(ctx); err != nil && ctx.Err() == nil {
		e.log.Error("homes are not up to date; trying again", "error", err)
		e.suspect()
	}
}

// repairs paces what is done against another program.
type repairs struct {
	pause time.Duration
	last  time.Time
}

// wait returns how long not to repair although there is a reason to.
func (r *repairs) wait(now time.Time) time.Duration { return max(0, r.last.Add(r.pause).Sub(now)) }

// made notes a repair, or one that failed.
func (r *repairs) made(now time.Time) {
	if now.Sub(r.last) < 2*r.pause {
		r.pause = min(2*r.pause, checkEvery)
	} else {
		r.pause = repairPause
	}
	r.last = now
}

// rest is the time without looks for changes.
type rest struct{ until time.Time }

// wait returns how long not to look although there is a change.
func (r *rest) wait(now time.Time) time.Duration { return max(0, r.until.Sub(now)) }

// looked notes a look. After a repair the other program may change more at once.
func (r *rest) looked(began, ended time.Time, repaired bool) {
	if r.until = ended; !repaired {
		r.until = ended.Add(changeRest * ended.Sub(began))
	}
}

// touched tells whether a table that was written may have been changed, a set holds another
// number of members or, of the sets whose turn it is, other members.
func (e *Enforcer) touched() bool {
	if !e.apply.TryLock() {
		return false
	}
	defer e.apply.Unlock()
	if e.snapshot == nil {
		return false
	}
	p, polled := e.plane.Interface.(dataplane.Poller)
	return polled && p.Changed(e.state(e.inForce()))
}

// reconcile is compare for RunReconcile: an error is logged unless ctx has ended.
func (e *Enforcer) reconcile(ctx context.Context, all, repair bool) error {
	err := e.compare(ctx, all, repair)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil && repair {
		e.log.Error("the kernel is not in the wanted state; trying again", "error", err)
	}
	return err
}

// resettle looks for homes and, where one or a link-local address of the node moved, writes the
// plan again.
func (e *Enforcer) resettle(ctx context.Context) error {
	e.apply.Lock()
	defer e.apply.Unlock()
	if e.snapshot == nil {
		return nil
	}
	homes, bound, gateways, unseen := e.homes, e.bound(e.plan), e.gateways, e.unseen
	e.findHomes(e.snapshot)
	e.endOrphans()
	if maps.Equal(homes, e.homes) && maps.Equal(bound, e.bound(e.plan)) && slices.Equal(gateways, e.gateways) && unseen == e.unseen {
		return nil
	}
	e.plan, e.complete = e.planOf(e.snapshot), false
	defer e.rightsLost()
	return e.write(ctx, e.inForce(), e.snapshot, nil)
}

// inForce is the plan, and what Prepare made ready beside it.
func (e *Enforcer) inForce() dataplane.Subjects { return e.beside(e.snapshot, e.plan) }

// beside is the plan of a snapshot, and what Prepare made ready beside it.
func (e *Enforcer) beside(s *policy.Snapshot, subjects dataplane.Subjects) dataplane.Subjects {
	if e.coming == s {
		return subjects
	}
	return plan.Union(subjects, e.planOf(e.coming), e.closed)
}

// errDeviates says that a repair has to wait.
type errDeviates []string

func (d errDeviates) Error() string {
	return strings.Join(d, ", ") + " not as wanted; the repair waits, since another program changes it again and again"
}

// compare compares the nft tables, the dataplane and its grants with the wanted state, and
// repairs deviations. Without all it reads only the tables of rules that may have been
// changed. Without repair a deviation is reported, and an error. Before the first Commit it
// does nothing.
func (e *Enforcer) compare(ctx context.Context, all, repair bool) (err error) {
	if err := e.resettle(ctx); err != nil {
		e.drift.report(fromRepair, e.now(), err, "homes")
		return err
	}
	e.apply.Lock()
	defer e.apply.Unlock()
	if e.snapshot == nil {
		return nil
	}
	defer func() {
		e.complete = e.complete && err == nil
		if err != nil && repair {
			e.drift.report(fromRepair, e.now(), err, "repair")
		} else if err == nil {
			e.drift.report(fromRepair, e.now(), nil)
			e.drift.report(fromKernel, e.now(), nil)
		}
	}()
	e.forgetRelays()
	plan := e.inForce()
	var tables []string
	if all = all || e.k.Tables.ExternalChange(); all { // the kernel looks for each of thousands of sets among all
		e.k.Tables.Checkpoint()
		if tables, err = e.k.Tables.Verify(ctx, e.tables(plan, e.snapshot)); err != nil {
			return err
		}
	}
	found, err := e.plane.Verify(ctx, e.state(plan), all)
	if err != nil {
		return err
	}
	var wrong []grants.Deviation
	if all || len(tables) > 0 {
		if wrong, err = e.grants.Verify(ruleset.RulesOf(plan)); err != nil {
			return err
		}
	}
	found = append(slices.Clone(tables), found...)
	for _, d := range wrong {
		found = append(found, entriesOf(d))
	}
	found = slices.Compact(found)
	e.drift.report(fromKernel, e.now(), nil, found...)
	if !repair && len(found) > 0 {
		return errDeviates(found)
	}
	return e.repair(ctx, plan, found, tables, wrong)
}

// repair writes what was found to deviate, of that the tables and the entries that are wrong, and all that earlier
// writes left undone. What fails holds up nothing else.
func (e *Enforcer) repair(ctx context.Context, subjects dataplane.Subjects, found, tables []string, wrong []grants.Deviation) error {
	if len(tables) > 0 {
		// A lost rule that denies leaves its connections to the rules below it.
		e.flows.Recheck(flows.RulesLost, addrsWithTiers(subjects))
	}
	if len(wrong) > 0 {
		// So does a lost entry, of a rule of ours.
		e.flows.Recheck(flows.PolicyChanged, addrsWithTiers(subjects))
	}
	failed := e.flows.Record()
	if len(tables) > 0 {
		failed = errors.Join(failed, e.k.Tables.Rewrite(ctx, e.tables(subjects, e.snapshot)), e.settleOrdered(subjects))
		e.intercept.Renew()
	}
	if failed = errors.Join(failed, e.grants.Repair(wrong), e.write(ctx, subjects, e.snapshot, nil)); failed != nil {
		return failed
	}
	if refused := (dataplane.Refused{}); errors.As(e.plane.refused, &refused) { // these sets are found each time
		found = slices.DeleteFunc(found, func(object string) bool { return slices.Contains(refused.Sets, strings.TrimPrefix(object, "set ")) })
	}
	if len(found) > 0 {
		e.repairs.Add(1)
		e.log.Warn("restored rules that another program or a failed write changed", "rules", strings.Join(found[:min(len(found), namedMost)], ", "), "objects", len(found))
	}
	return errors.Join(e.plane.refused, e.endDueSwitch(ctx))
}

// namedMost bounds the objects that a line of the log names.
const namedMost = 8

// entriesOf names the set of an entry.
func entriesOf(d grants.Deviation) string {
	if d.Set.Rule == "" {
		return "nft grants " + d.Set.Name
	}
	return fmt.Sprintf("nft entries of rule %s", d.Set.Rule)
}
