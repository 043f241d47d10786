package enforcer

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/plan"
	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/policy"
)

// cut takes admissions back, of connections of gone addresses all, of those of pods
// whose policies allow less than before what nothing covers that the pod was
// granted, now or in the past. What is not remembered, because an agent was
// restarted or a pod had too much, is not covered. Of the pods that only lost peers it
// is about their connections to these. The kernel is asked once for all of it, and not
// at all where there is nothing to cut.
func (e *Enforcer) cut(pods map[policy.PodRef]bool, review map[policy.PodRef]lostPeers, gone []netip.Addr) error {
	rejudged, parts := map[netip.Addr]*dataplane.Subject{}, map[netip.Addr]lostPeers{}
	owners, plan := map[netip.Addr]*dataplane.Subject{}, e.inForce()
	for ref, lost := range review {
		if p := plan[ref]; p != nil && !pods[ref] {
			for _, a := range p.Addrs {
				parts[a], owners[a] = lost, p
			}
		}
	}
	for ref := range pods {
		if p := plan[ref]; p != nil { // else the whole pod is gone: goneAddrs
			for _, a := range p.Addrs {
				rejudged[a] = p
			}
		}
	}
	for _, a := range gone {
		rejudged[a] = nil
		delete(parts, a)
	}
	flows, err := e.flowsOf(rejudged, parts)
	if err != nil {
		return err
	}
	for _, f := range flows {
		p, whole := rejudged[f.Src.Addr()]
		if lost, part := parts[f.Src.Addr()]; part && !whole {
			if p = owners[f.Src.Addr()]; !lost.all && !lost.addrs[f.Peer.Addr()] {
				continue
			}
		}
		if p != nil && e.covers(p, f) {
			continue
		}
		if err := e.k.Flows.SetMark(f, 0, e.cfg.Mark); err != nil {
			return err
		}
	}
	return nil
}

// forget takes the admission of every connection of the addresses back.
func (e *Enforcer) forget(addrs []netip.Addr) error { return e.cut(nil, nil, addrs) }

// admitOpen judges once the connections that pods had open before they become
// selected: what their grants cover is admitted, so that they never notice. The
// rest has no admission and is cut by becoming selected.
func (e *Enforcer) admitOpen(last, subjects dataplane.Subjects) error {
	known := plan.Known(e.snapshot)
	fresh := map[netip.Addr]*dataplane.Subject{}
	for ref, p := range subjects {
		if !p.Isolated {
			continue
		}
		was := last[ref]
		for _, a := range p.Addrs {
			if e.inherited.judged(a, ref) || was != nil && was.Isolated && slices.Contains(was.Addrs, a) {
				continue
			}
			if _, seen := slices.BinarySearchFunc(known, a, netip.Addr.Compare); seen || e.snapshot == nil || e.grants.OpenedAny(ref, a.Is6()) || p.Peers != nil {
				fresh[a] = p
			}
		}
	}
	return e.eachFlow(0, slices.Collect(maps.Keys(fresh)), func(f conntrack.Flow) error {
		if !e.covers(fresh[f.Src.Addr()], f) {
			return nil
		}
		return e.k.Flows.SetMark(f, e.cfg.Mark, e.cfg.Mark)
	})
}

// eachFlow does something with each connection of addresses whose mark has our bit
// as it is in mark.
func (e *Enforcer) eachFlow(mark uint32, addrs []netip.Addr, do func(conntrack.Flow) error) error {
	if len(addrs) == 0 {
		return nil
	}
	flows, err := e.k.Flows.Flows(conntrack.Query{Sources: addrs, Mark: mark, Mask: e.cfg.Mark})
	if err != nil {
		return err
	}
	for _, f := range flows {
		if err := do(f); err != nil {
			return err
		}
	}
	return nil
}

// covers tells whether a pod may have opened a connection: by a grant, also one
// that has ended since; to a resolver or the endpoint; to itself; to a peer.
func (e *Enforcer) covers(p *dataplane.Subject, f conntrack.Flow) bool {
	if slices.Contains(p.Addrs, f.Dst.Addr()) || slices.Contains(p.Addrs, f.Peer.Addr()) || e.isDNS(f) || p.Reaches(policy.Protocol(f.Protocol), f.Peer) {
		return true
	}
	return e.grants.Opened(p.Pod, f.Dst.Addr(), policy.Protocol(f.Protocol), f.Dst.Port())
}

func (e *Enforcer) isDNS(f conntrack.Flow) bool {
	if f.Dst.Port() != 53 {
		return false
	}
	if _, ok := e.departing.addrs[f.Dst.Addr()]; ok {
		return true
	}
	for dialled, serving := range e.serving {
		if f.Dst.Addr() == serving || f.Dst.Addr() == dialled && !e.cfg.FailClosed {
			return true
		}
	}
	return false
}
