package enforcer

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/flows"
	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
)

// Rules for ingress are of standards, which decide about new connections: a change of them cuts none. So there are two
// moments at which connections to pods are looked at: when rules begin to judge an address, and when its pod is gone.

// haveIngress tells whether a subject has rules for ingress.
func haveIngress(subjects dataplane.Subjects) bool {
	for _, p := range subjects {
		if p.Ingress != nil {
			return true
		}
	}
	return false
}

// bound are the homes of this node's pods, where there are rules for ingress.
func (e *Enforcer) bound(subjects dataplane.Subjects) map[netip.Addr]link.Home {
	if !haveIngress(subjects) {
		return nil
	}
	out := map[netip.Addr]link.Home{}
	for a, h := range e.homes {
		if !h.Nowhere() {
			out[a] = h.Home
		}
	}
	return out
}

// ingressAddrs returns the addresses of subjects with rules for ingress, with their subjects.
func ingressAddrs(subjects dataplane.Subjects) map[netip.Addr]*dataplane.Subject {
	out := map[netip.Addr]*dataplane.Subject{}
	for _, p := range subjects {
		if p.Ingress != nil {
			for _, a := range p.Addrs {
				out[a] = p
			}
		}
	}
	return out
}

// admitToComing admits the connections to addresses that rules for ingress begin to judge: to a pod that was there all
// that are open, and of those to the pod of a new address, and at an agent's start, the allowed ones. A connection from a
// subject that is default-deny has its admission, or is judged again. Connections to addresses whose pod is another
// lose their admission.
func (e *Enforcer) admitToComing(last, subjects dataplane.Subjects) error {
	was, coming, stale := ingressAddrs(last), ingressAddrs(subjects), []netip.Addr(nil)
	for a, p := range was {
		if now := coming[a]; now == nil || now.Pod != p.Pod {
			stale = append(stale, a)
		}
	}
	for a := range e.recovered.ingress {
		if p := coming[a]; p == nil || !e.recovered.same(a, p.Pod) {
			stale = append(stale, a)
		}
	}
	maps.DeleteFunc(coming, func(a netip.Addr, p *dataplane.Subject) bool {
		return was[a] != nil && was[a].Pod == p.Pod || e.recovered.ingress[a] && e.recovered.same(a, p.Pod)
	})
	if err := e.flows.WithdrawIngress(stale); err != nil {
		return err
	}
	isolated := isolatedAddrs(last)
	return e.flows.AdmitIngress(slices.Collect(maps.Keys(coming)), func(f conntrack.Flow) bool {
		if isolated[f.Src.Addr()] || e.recovered.isolated[f.Src.Addr()] {
			return false
		}
		p := coming[f.Peer.Addr()]
		ref, known := e.snapshot.Pod(f.Peer.Addr())
		return known && ref == p.Pod || mayReach(p, f)
	})
}

// admitBegun admits the connections that began after admitToComing looked, and that the rules allow: what a pod sends
// needs an admission, and its client need not send anything more.
func (e *Enforcer) admitBegun(last dataplane.Subjects) error {
	was, coming := ingressAddrs(last), ingressAddrs(e.plan)
	maps.DeleteFunc(coming, func(a netip.Addr, p *dataplane.Subject) bool { return was[a] != nil && was[a].Pod == p.Pod })
	if len(coming) == 0 {
		return nil
	}
	isolated := isolatedAddrs(e.plan)
	return e.flows.AdmitIngress(slices.Collect(maps.Keys(coming)), func(f conntrack.Flow) bool {
		return !isolated[f.Src.Addr()] && mayReach(coming[f.Peer.Addr()], f)
	})
}

// isolatedAddrs are the addresses of subjects that are default-deny.
func isolatedAddrs(subjects dataplane.Subjects) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for _, p := range subjects {
		if p.Isolated {
			for _, a := range p.Addrs {
				out[a] = true
			}
		}
	}
	return out
}

// mayReach tells whether the rules for ingress of a subject allow a connection of a pod of this node, or of another
// node: those of this node itself need no admission.
func mayReach(p *dataplane.Subject, f conntrack.Flow) bool {
	if p == nil || p.Ingress == nil {
		return true
	}
	flow := policy.Flow{Protocol: policy.Protocol(f.Protocol), Dialled: f.Dst, Reached: f.Peer, Source: f.Src.Addr()}
	allowed, _ := policy.EvaluateIngress(p.Snapshot.ViewOf(p.Pod), p.Snapshot, &flow)
	return allowed
}

// recheckAdmitted rechecks the connections of addresses that become default-deny: rules for ingress may have admitted
// them, when nothing judged their source.
func (e *Enforcer) recheckAdmitted(last dataplane.Subjects, coming map[netip.Addr]*dataplane.Subject) {
	if haveIngress(last) || len(e.recovered.ingress) > 0 {
		e.flows.Recheck(flows.PolicyChanged, slices.Collect(maps.Keys(coming)))
	}
}
