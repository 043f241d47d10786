package enforcer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/dataplane/xtables"
	"github.com/namegate/namegate/enforcer/flows"
	"github.com/namegate/namegate/enforcer/grants"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/policy"
)

// refusalsMax is how often a set that the kernel refuses holds everything up.
const refusalsMax = 3

// readySets creates the sets of a plan that are not there. A set that an earlier
// agent left is adopted with its entries. One that the kernel refuses is noted in
// e.missing, and that is an error a few times; then the pod is left closed
// there, so that the others are not held up for ever.
func (e *Enforcer) readySets(plan dataplane.Subjects) error {
	if e.doubtful {
		if err := e.restoreSets(); err != nil {
			return err
		}
		e.doubtful = false
	}
	clear(e.missing)
	missing := e.grants.Missing(grantKeys(plan), e.found)
	peers := askedPeers(plan)
	freshPeers, leftPeers := e.newPeerSets(peers)
	if err := e.recoverSets(missing, leftPeers); err != nil {
		return err
	}
	var failed error
	added := missing.Add(func(key grants.Key, err error) {
		if e.missing[key.Pod] == nil {
			e.missing[key.Pod] = map[policy.PortSet]bool{}
		}
		e.missing[key.Pod][key.Ports] = true
		failed = fmt.Errorf("set of pod %s for %s: %w", key.Pod, key.Ports, err)
	})
	for _, name := range added {
		delete(e.found, name)
	}
	if err := e.readyPeers(peers, freshPeers, leftPeers); err != nil {
		failed = err
	}
	switch {
	case failed == nil:
		e.refusals = 0
		return nil
	case e.refusals < refusalsMax:
		e.refusals++
		return failed
	case e.refusals == refusalsMax:
		e.refusals++
		e.log.Error("the kernel refuses sets; what they are for stays closed, the rest goes on", "error", failed)
	}
	return nil
}

// recoverSets reads the sets that an earlier agent left, all in one listing.
func (e *Enforcer) recoverSets(missing *grants.Missing, peers map[string]*peerSet) error {
	if !missing.NeedsListing() && len(peers) == 0 {
		return nil
	}
	return e.k.Sets.ListAll(func(head ipset.Set, entries []ipset.Entry) {
		if p := peers[head.Name]; p != nil {
			p.take(head, entries)
		} else {
			missing.Read(head, entries)
		}
	})
}

// carryOver lets grants be made by the coming snapshot too, and has the connections of
// the pods judged again that it allows fewer names.
func (e *Enforcer) carryOver(coming *policy.Snapshot) error {
	narrowed, err := e.grants.CarryOver(e.snapshot, coming)
	for _, ref := range narrowed {
		e.flows.Recheck(flows.PolicyChanged, slices.Concat(e.snapshot.ViewOf(ref).Pod.IPs, coming.ViewOf(ref).Pod.IPs))
	}
	return err
}

// dropSets takes back every grant that the snapshot in force does not allow,
// gives up the sets that no chain asks any more, and notes what it took back. Pods that
// a part of what is coming has left out have their grants by both.
func (e *Enforcer) dropSets(plan dataplane.Subjects) error {
	for ref := range e.grants.Pods() {
		view := e.snapshot.ViewOf(ref)
		if view != e.coming.ViewOf(ref) {
			continue
		}
		var ports []policy.PortSet
		if p := plan[ref]; p != nil {
			ports = p.Grants
		}
		closed, released, err := e.grants.TakeBack(ref, view, ports, func() error {
			if p := e.plan[ref]; p != nil {
				return e.flows.Owe(p.Addrs...)
			}
			return nil
		})
		if closed {
			e.recheckPod(ref)
		}
		for _, name := range released {
			e.found[name] = true
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// destroyFound destroys the sets that no chain asks any more.
func (e *Enforcer) destroyFound() error {
	for name := range e.found {
		err := e.k.Sets.Destroy(name)
		switch {
		case err == nil, ipset.IsNotFound(err):
			delete(e.found, name)
		case ipset.IsBusy(err):
			e.log.Warn("a set that no policy needs stays; a rule that is not ours refers to it", "set", name)
		default:
			return err
		}
	}
	return nil
}

// recheckLeft has the connections of pods judged again of which an earlier agent left a
// set that no policy needs any more: its members are not known, and the connections that
// they allowed are to be cut.
func (e *Enforcer) recheckLeft(plan dataplane.Subjects) {
	pods := map[string]policy.PodRef{}
	for ref := range plan {
		pods[xtables.PodID(ref)] = ref
	}
	for name := range e.found {
		if _, rest, ok := strings.Cut(name, "-"); ok {
			id, _, _ := strings.Cut(rest, "-")
			if ref, ours := pods[id]; ours {
				e.flows.Recheck(flows.PolicyChanged, plan[ref].Addrs)
			}
		}
	}
}
