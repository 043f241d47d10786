package enforcer

import (
	"errors"
	"net/netip"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/flows"
	"github.com/namegate/namegate/enforcer/grants"
	"github.com/namegate/namegate/policy"
)

// carryOver lets grants be made by the coming snapshot too, and has the connections of
// the pods judged again that it allows fewer names or denies more addresses.
func (e *Enforcer) carryOver(coming *policy.Snapshot) (grants.Carried, error) {
	carried, err := e.grants.CarryOver(e.snapshot, coming)
	for _, ref := range carried.Narrowed {
		for _, v := range []*policy.View{e.snapshot.ViewOf(ref), coming.ViewOf(ref)} {
			if v != nil {
				e.flows.Recheck(flows.PolicyChanged, v.Pod.IPs)
			}
		}
	}
	return carried, err
}

// dropSets revokes every grant that the snapshot in force does not allow, and notes the
// revoked grants. Pods that a partial
// commit has left out have their grants by both snapshots. What cannot be revoked of one pod holds
// up no other.
func (e *Enforcer) dropSets(plan dataplane.Subjects) (failed error) {
	for ref := range e.grants.Pods() {
		view := e.snapshot.ViewOf(ref)
		if view != e.coming.ViewOf(ref) {
			continue
		}
		var addrs []netip.Addr
		if p := e.plan[ref]; p != nil {
			addrs = p.Addrs
		}
		closed, err := e.grants.TakeBack(ref, view, plan[ref].Asks, func() error { return e.flows.Record(addrs...) })
		if closed {
			e.flows.Recheck(flows.PolicyChanged, addrs)
		}
		failed = errors.Join(failed, err)
	}
	return failed
}
