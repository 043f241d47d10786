package enforcer

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"time"
)

// While one agent follows another both grant, and both answer: the one that goes
// answers what it took before its successor's interception was in force. Until it is
// gone its serving addresses stay open and what it says is given back, and nothing
// ends at a deadline that it may have moved.

// departMost is how long an agent may take to go until grants end at the deadlines
// that its successor knows: an agent that hangs must not keep everything open.
const departMost = 30 * time.Second

// departing are another agent's serving addresses, with what pods dial for them.
type departing struct {
	addrs map[netip.Addr]netip.Addr
	since time.Time
}

// noteDeparting takes the addresses of the node at which another agent serves.
func (e *Enforcer) noteDeparting(all []netip.Addr) {
	e.departing = departing{map[netip.Addr]netip.Addr{}, e.now()}
	dialled := e.k.Tables.GivenBack()
	for _, a := range all {
		if servingRange(a) && e.inUse(a) {
			e.departing.addrs[a] = dialled[a] // zero where nothing comes to it
		}
	}
	e.together.Store(len(e.departing.addrs) > 0)
}

// AwaitDeparture finds out whether the agent before this one is gone, closes what
// was its own then, and takes over what it granted last. While it is there, which
// is true then, grants must not end.
func (e *Enforcer) AwaitDeparture(ctx context.Context) (there bool, err error) {
	if !e.together.Load() {
		return false, nil
	}
	if !e.apply.TryLock() {
		return true, nil // what holds it comes first
	}
	defer e.apply.Unlock()
	if e.snapshot == nil {
		return true, nil
	}
	left := maps.Clone(e.departing.addrs)
	maps.DeleteFunc(left, func(a, _ netip.Addr) bool { return !e.inUse(a) })
	if len(left) > 0 {
		return e.now().Sub(e.departing.since) < departMost, nil
	}
	if err := e.grants.TakeOver(); err != nil {
		return true, fmt.Errorf("take over the last agent's grants: %w", err)
	}
	for a := range e.departing.addrs {
		if err := e.k.Links.DelAddr(a); err != nil {
			e.log.Warn("an address of an earlier agent stays", "address", a, "error", err)
		}
	}
	e.departing.addrs = nil
	e.together.Store(false)
	if err := e.plane.RepairPeers(); err != nil {
		return false, fmt.Errorf("put right what the last agent did to peers: %w", err)
	}
	if err := e.plane.Isolate(e.state(e.inForce())); err != nil {
		return false, err
	}
	return false, e.k.Tables.Apply(ctx, e.tablesState(e.inForce()))
}

// TakenOver tells whether the kernel leads pods' queries to another agent.
func (e *Enforcer) TakenOver(ctx context.Context) (bool, error) {
	now, err := e.k.Tables.Serving(ctx)
	if err != nil {
		return false, err
	}
	e.apply.Lock()
	defer e.apply.Unlock()
	others := false
	for dialled, serving := range e.serving {
		switch at, ok := now[dialled]; {
		case ok && at == serving:
			return false, nil
		case ok:
			others = true
		}
	}
	return others, nil
}
