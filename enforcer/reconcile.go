package enforcer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/namegate/namegate/policy"
)

const (
	// checkEvery is how often the kernel is compared with what was written, besides
	// when something tells of a change.
	checkEvery = 5 * time.Second
	// settleAfter is how long links have to settle that have changed.
	settleAfter = 200 * time.Millisecond
	// fullLooks is in how many checks tables of rules are read of which nobody says that
	// another program has changed them: thousands take half a second of a core.
	fullLooks = 12
	// firstLook is after how long what was written first is compared.
	firstLook = time.Second
	// glanceEvery is how often tables are glanced at of whose changes the kernel does
	// not tell.
	glanceEvery = 200 * time.Millisecond
	// repairPause is how long another program has its way after a repair; one that
	// comes again within twice the pause doubles it, up to checkEvery.
	repairPause = 100 * time.Millisecond
)

// RunReconcile keeps the kernel as the last Commit left it until ctx ends: homes
// are looked for when links change, and what another program removed comes back,
// at once where the kernel tells of it and where a glance shows it, but ever more
// slowly where it is removed again and again.
func (e *Enforcer) RunReconcile(ctx context.Context) error {
	events, err := e.k.Links.Watch(ctx)
	if err != nil {
		return fmt.Errorf("watch links: %w", err)
	}
	losses, err := e.k.Tables.Watch(ctx)
	if err != nil {
		return fmt.Errorf("watch nft tables: %w", err)
	}
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	glance := time.NewTicker(glanceEvery)
	defer glance.Stop()
	first := time.After(firstLook)
	var look <-chan time.Time // there is a reason to
	var r repairs
	sets := setGlance{next: time.Now().Add(firstLook)}
	n := 1 // the first look is a full one
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			e.reconcile(ctx, n%fullLooks == 0)
			n++
			continue
		case <-first:
			if look == nil { // what was changed while nobody watched
				look = time.After(0)
			}
			continue
		case <-losses:
			if look == nil && e.k.Tables.Foreign() {
				look = time.After(r.wait(time.Now()))
			}
			continue
		case <-glance.C:
			if look == nil && (e.touched() || sets.shows(e)) {
				look = time.After(r.wait(time.Now()))
			}
			continue
		case <-look:
			before := e.repairs.Load()
			e.reconcile(ctx, true)
			if e.repairs.Load() > before {
				r.made(time.Now())
			}
			look = nil
			continue
		case <-events:
			if err := e.resettle(ctx); err != nil && ctx.Err() == nil {
				e.log.Error("homes are not up to date; trying again", "error", err)
			}
			// Links change in bursts: one look for each.
			select {
			case <-ctx.Done():
			case <-time.After(settleAfter):
			}
		}
	}
}

// repairs paces what is done against another program.
type repairs struct {
	pause time.Duration
	last  time.Time
}

// wait returns how long not to look although there is a reason to.
func (r *repairs) wait(now time.Time) time.Duration { return max(0, r.last.Add(r.pause).Sub(now)) }

// made is told of a repair.
func (r *repairs) made(now time.Time) {
	if now.Sub(r.last) < 2*r.pause {
		r.pause = min(2*r.pause, checkEvery)
	} else {
		r.pause = repairPause
	}
	r.last = now
}

// touched tells whether somebody changed a table that was written, or a set that is
// always there.
func (e *Enforcer) touched() bool {
	if !e.apply.TryLock() {
		return false
	}
	defer e.apply.Unlock()
	if changed, err := e.changedStatic(); err == nil && len(changed) > 0 {
		return true
	}
	for key, was := range e.glances {
		if now, err := e.k.Chains.Glance(key.family, key.table); err == nil && now != was {
			return true
		}
	}
	return false
}

func (e *Enforcer) reconcile(ctx context.Context, all bool) {
	if err := e.compare(ctx, all); err != nil && ctx.Err() == nil {
		e.log.Error("the kernel is not as it should be; trying again", "after", checkEvery, "error", err)
	}
}

// resettle looks for homes and, where one moved, writes the plan again.
func (e *Enforcer) resettle(ctx context.Context) error {
	e.apply.Lock()
	defer e.apply.Unlock()
	if e.snapshot == nil {
		return nil
	}
	homes, unseen := e.homes, e.unseen
	e.findHomes(e.snapshot)
	if maps.Equal(homes, e.homes) && unseen == e.unseen {
		return nil
	}
	e.plan = e.planOf(e.snapshot)
	return e.write(ctx, e.inForce())
}

// inForce is the plan, and what Prepare made ready beside it.
func (e *Enforcer) inForce() map[policy.PodRef]*podPlan {
	if e.coming == e.snapshot {
		return e.plan
	}
	return union(e.plan, e.planOf(e.coming), e.closing)
}

// Reconcile compares the kernel with what was last written and repairs what is
// not so. Before the first Commit it does nothing.
func (e *Enforcer) Reconcile(ctx context.Context) error { return e.compare(ctx, true) }

// compare is Reconcile; rules are read if they may have been changed, or in any case.
func (e *Enforcer) compare(ctx context.Context, all bool) error {
	if err := e.resettle(ctx); err != nil {
		return err
	}
	e.apply.Lock()
	defer e.apply.Unlock()
	if e.snapshot == nil {
		return nil
	}
	if all = all || e.k.Tables.Foreign(); all {
		e.k.Tables.Settle()
		if err := e.repairTables(ctx); err != nil {
			return err
		}
	}
	if err := e.repairSets(); err != nil {
		return err
	}
	if all {
		if err := e.repairChains(ctx); err != nil {
			return err
		}
	}
	return e.write(ctx, e.inForce())
}

func (e *Enforcer) repairTables(ctx context.Context) error {
	intact, err := e.k.Tables.Intact(ctx)
	if err != nil || intact {
		return err
	}
	e.repaired("nft tables")
	return e.k.Tables.Rewrite(ctx, e.tablesState(e.plan))
}

// repairChains forgets what it knows of a table that is not as it was printed
// after the last write; writing then starts from what is there.
func (e *Enforcer) repairChains(ctx context.Context) error {
	for _, key := range slices.SortedFunc(maps.Keys(e.seen), func(a, b chainsKey) int { return int(a.family) - int(b.family) }) {
		e.glanceAt(key)
		saved, err := e.k.Chains.Save(ctx, key.family, key.table)
		if err != nil {
			return err
		}
		if !sameChains(ours(key, saved), e.seen[key]) {
			e.repaired(key.family.String() + " " + key.table + " chains")
			delete(e.chains, key)
		}
	}
	return nil
}

func (e *Enforcer) repaired(what string) {
	e.repairs.Add(1)
	e.log.Warn("another program changed our rules; they are put back", "rules", what)
}
