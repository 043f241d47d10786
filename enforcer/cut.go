package enforcer

import (
	"net/netip"
	"slices"

	"github.com/namegate/namegate/enforcer/conntrack"
	"github.com/namegate/namegate/policy"
)

// cut judges the connections of pods anew whose policies allow less than before,
// and takes the admission of those back that nothing covers which the pod was
// granted, now or in the past. What is not remembered, because an agent was
// restarted or a pod had too much, is not covered.
func (e *Enforcer) cut(pods map[policy.PodRef]bool) error {
	for ref := range pods {
		p := e.plan[ref]
		if p == nil {
			continue // the whole pod is gone: goneAddrs
		}
		err := e.eachFlow(p.addrs, func(f conntrack.Flow) error {
			if f.Mark&e.cfg.Mark == 0 || e.covers(p, f) {
				return nil
			}
			return e.k.Flows.SetMark(f, 0, e.cfg.Mark)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// admitOpen judges once the connections that pods had open before they become
// selected: what their grants cover is admitted, so that they never notice. The
// rest has no admission and is cut by becoming selected.
func (e *Enforcer) admitOpen(last, plan map[policy.PodRef]*podPlan) error {
	for ref, p := range plan {
		was := last[ref]
		fresh := slices.DeleteFunc(slices.Clone(p.addrs), func(a netip.Addr) bool {
			return !p.selected || e.inherited.judged(a, ref) || was != nil && was.selected && slices.Contains(was.addrs, a)
		})
		err := e.eachFlow(fresh, func(f conntrack.Flow) error {
			if !e.covers(p, f) {
				return nil
			}
			return e.k.Flows.SetMark(f, e.cfg.Mark, e.cfg.Mark)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// goneAddrs returns the addresses that a pod of the last plan does not have any
// more: a pod that gets one later inherits no connection.
func goneAddrs(last, plan map[policy.PodRef]*podPlan) []netip.Addr {
	var out []netip.Addr
	for ref, p := range last {
		now := plan[ref]
		for _, a := range p.addrs {
			if now == nil || !slices.Contains(now.addrs, a) {
				out = append(out, a)
			}
		}
	}
	return out
}

// forget takes the admission of every connection of the addresses back.
func (e *Enforcer) forget(addrs []netip.Addr) error {
	return e.eachFlow(addrs, func(f conntrack.Flow) error { return e.k.Flows.SetMark(f, 0, e.cfg.Mark) })
}

func (e *Enforcer) eachFlow(addrs []netip.Addr, do func(conntrack.Flow) error) error {
	for _, a := range addrs {
		flows, err := e.k.Flows.Flows(a)
		if err != nil {
			return err
		}
		for _, f := range flows {
			if err := do(f); err != nil {
				return err
			}
		}
	}
	return nil
}

// covers tells whether a pod may have opened a connection: by a grant, also one
// that has ended since; to a resolver or the endpoint; to itself.
func (e *Enforcer) covers(p *podPlan, f conntrack.Flow) bool {
	if slices.Contains(p.addrs, f.Dst.Addr()) || slices.Contains(p.addrs, f.Peer.Addr()) || e.isDNS(f) {
		return true
	}
	g := e.grants.of(p.ref)
	if g == nil {
		return false
	}
	for s := range g.all() {
		if contains(s.key.ports, f) && s.knows(f.Dst.Addr()) {
			return true
		}
	}
	return false
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

func contains(s policy.PortSet, f conntrack.Flow) bool {
	return s.Contains(policy.Protocol(f.Protocol), f.Dst.Port())
}
