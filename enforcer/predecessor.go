package enforcer

import (
	"context"
	"fmt"
	"time"

	"github.com/namegate/namegate/enforcer/ruleset"
)

// AwaitPredecessor finds out whether the agent before this one is gone, closes its serving
// addresses then, and takes over the grants that it made last, which the snapshot judges when it is
// prepared again. While it is there, which is true then, grants must not end.
func (e *Enforcer) AwaitPredecessor(ctx context.Context) (there bool, err error) {
	if !e.predecessor.Present() {
		return false, nil
	}
	if !e.apply.TryLock() {
		return true, nil // the holder's work comes first
	}
	defer e.apply.Unlock()
	if e.snapshot == nil {
		return true, nil
	}
	if !e.predecessor.Gone() {
		return !e.predecessor.TimedOut(), nil
	}
	if err := e.grants.Recover(ruleset.RulesOf(e.inForce()), e.snapshot.View, true); err != nil {
		return true, fmt.Errorf("take over the last agent's grants: %w", err)
	}
	for a := range e.predecessor.Addrs() {
		if err := e.k.Links.DelAddr(a); err != nil {
			e.log.Warn("an address of an earlier agent stays", "address", a, "error", err)
		}
	}
	e.predecessor.Forget()
	e.complete = false // all is prepared
	e.cfg.Reprepare()
	if err := e.endSwitch(ctx); err != nil {
		e.log.Error("the other dataplane's objects stay; trying again", "error", err)
	}
	if err := e.write(ctx, e.inForce(), e.snapshot, nil); err != nil {
		return false, err
	}
	return false, e.shrink(ctx, e.inForce(), true)
}

// expiryTick is how late a grant may end: deadlines are looked at this often.
const expiryTick = 100 * time.Millisecond

// RunExpiry ends grants at their deadlines until ctx ends, but not while an
// earlier agent is there that may move them.
func (e *Enforcer) RunExpiry(ctx context.Context) {
	tick := time.NewTicker(expiryTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			there, err := e.AwaitPredecessor(ctx)
			if err != nil {
				e.log.Error("what the last agent left stays; trying again", "error", err)
			}
			if there {
				continue
			}
			if err := e.grants.Expire(); err != nil {
				e.log.Error("grants past their deadline stay until the kernel ends them", "error", err)
			}
		}
	}
}
