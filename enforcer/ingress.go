package enforcer

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/flows"
	"github.com/namegate/namegate/enforcer/plan"
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

// bound are the homes of this node's pods, where there are rules for ingress, also of pods that have no object any more.
func (e *Enforcer) bound(subjects dataplane.Subjects) map[netip.Addr]link.Home {
	if !haveIngress(subjects) {
		return nil
	}
	out := map[netip.Addr]link.Home{}
	for a, h := range e.orphans.homes {
		if now, known := e.homes[a]; known {
			h = now
		}
		if !h.Nowhere() {
			out[a] = h.Home
		}
	}
	return out
}

// beginning returns the addresses of subjects that no rules for ingress judge yet.
func (e *Enforcer) beginning(subjects dataplane.Subjects) (out []netip.Addr) {
	last := ingressAddrs(e.plan)
	for a, p := range ingressAddrs(subjects) {
		if last[a] == nil && !e.recovered.ingress[a] && !e.closed[p.Pod] {
			out = append(out, a)
		}
	}
	return out
}

// judgedBefore returns subjects without the rules for ingress that begin: the second net must not ask before the judge
// does.
func judgedBefore(subjects dataplane.Subjects, begin []netip.Addr) dataplane.Subjects {
	if len(begin) == 0 {
		return subjects
	}
	out := maps.Clone(subjects)
	for ref, p := range subjects {
		if !slices.ContainsFunc(p.Addrs, func(a netip.Addr) bool { return !slices.Contains(begin, a) }) {
			open := *p
			open.Ingress, out[ref] = nil, &open
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
// lose their admission. It returns what follows when the tables judge by the plan: connections may have been opened meanwhile.
func (e *Enforcer) admitToComing(s *policy.Snapshot, last, subjects dataplane.Subjects) (settle func() error, err error) {
	inForce, recovered := e.snapshot, e.recovered
	if len(recovered.ingress) == 0 && !haveIngress(last) && !haveIngress(subjects) {
		return func() error { return nil }, nil
	}
	owners := plan.Owners(last) // also of pods that wait, which the snapshot in force does not know
	same := func(a netip.Addr, ref policy.PodRef) bool {
		owner, known := inForce.Pod(a)
		return known && owner == ref || owners[a] == ref || inForce == nil && recovered.same(a, ref)
	}
	judged, was := ingressAddrs(subjects), map[netip.Addr]bool{}
	maps.Copy(was, recovered.ingress)
	for a := range ingressAddrs(last) {
		was[a] = true
	}
	coming := maps.Clone(judged)
	maps.DeleteFunc(coming, func(a netip.Addr, p *dataplane.Subject) bool { return was[a] && same(a, p.Pod) })
	changing := slices.Collect(maps.Keys(coming))
	var stale []netip.Addr
	next := plan.Owners(subjects)
	for a := range was {
		ref, there := next[a]
		if !there {
			ref, there = s.Pod(a)
		}
		switch {
		case !there || !same(a, ref):
			stale = append(stale, a)
		case judged[a] == nil:
			changing = append(changing, a)
		}
	}
	if err := e.withdrawTo(stale); err != nil {
		return nil, err
	}
	before, now := isolatedAddrs(last), isolatedAddrs(subjects)
	unadmitted := conntrack.Query{Peers: slices.Collect(maps.Keys(coming)), Mask: e.cfg.Mark}
	err = e.flows.Settle(unadmitted, func(f conntrack.Flow) bool {
		p, src := coming[f.Peer.Addr()], f.Src.Addr()
		known := inForce != nil && same(f.Peer.Addr(), p.Pod)
		return !before[src] && !now[src] && !recovered.isolated[src] && (known || mayReach(p, f))
	})
	return func() error {
		err := e.flows.Settle(conntrack.Query{Peers: changing}, func(f conntrack.Flow) bool {
			p, admitted := coming[f.Peer.Addr()], f.Mark&e.cfg.Mark != 0
			switch {
			case p == nil: // the rules for ingress that end may have admitted it alone
				return admitted && now[f.Src.Addr()]
			case admitted:
				return same(f.Peer.Addr(), p.Pod) || mayReach(p, f)
			}
			return !now[f.Src.Addr()] && mayReach(p, f)
		})
		if len(judged) == 0 || err != nil {
			return err
		}
		moved := conntrack.Query{Sources: movedAddrs(inForce, s), Mark: e.cfg.Mark, Mask: e.cfg.Mark}
		return e.flows.Settle(moved, func(f conntrack.Flow) bool { return mayReach(judged[f.Peer.Addr()], f) })
	}, err
}

// withdrawTo takes the admission of every connection to addresses back.
func (e *Enforcer) withdrawTo(addrs []netip.Addr) error {
	return e.flows.Settle(conntrack.Query{Peers: addrs, Mark: e.cfg.Mark, Mask: e.cfg.Mark}, func(conntrack.Flow) bool { return false })
}

// settleOrdered withdraws the admission of connections that ordered rules for ingress deny: a lost one leaves its
// connections to the rules below it.
func (e *Enforcer) settleOrdered(subjects dataplane.Subjects) error {
	ordered := ingressAddrs(subjects)
	maps.DeleteFunc(ordered, func(_ netip.Addr, p *dataplane.Subject) bool {
		return len(p.Ingress.Admin)+len(p.Ingress.Baseline) == 0
	})
	admitted := conntrack.Query{Peers: slices.Collect(maps.Keys(ordered)), Mark: e.cfg.Mark, Mask: e.cfg.Mark}
	return e.flows.Settle(admitted, func(f conntrack.Flow) bool { return mayReach(ordered[f.Peer.Addr()], f) })
}

// isolatedAddrs returns the addresses of subjects that are default-deny.
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

// movedAddrs returns the addresses of a snapshot's pods that are not theirs any more.
func movedAddrs(was, is *policy.Snapshot) (out []netip.Addr) {
	for _, p := range was.Pods() {
		for _, a := range p.IPs {
			ref, known := was.Pod(a)
			if now, _ := is.Pod(a); known && now != ref {
				out = append(out, a)
			}
		}
	}
	return out
}

// recheckRemote rechecks the connections from addresses of pods of other nodes that are not theirs any more: the next pod
// of such an address may have a connection's source port too.
func (e *Enforcer) recheckRemote(s *policy.Snapshot, subjects dataplane.Subjects) {
	if e.snapshot == nil || !haveIngress(subjects) {
		return
	}
	was, is := e.snapshot.Remote, s.Remote // mostly one pod differs, and they have one order
	for len(was) > 0 && len(is) > 0 && was[0] == is[0] {
		was, is = was[1:], is[1:]
	}
	for len(was) > 0 && len(is) > 0 && was[len(was)-1] == is[len(is)-1] {
		was, is = was[:len(was)-1], is[:len(is)-1]
	}
	type owned struct {
		pod  policy.PodRef
		addr netip.Addr
	}
	owns := map[owned]bool{}
	for _, p := range is {
		for _, a := range p.IPs {
			owns[owned{p.PodRef, a}] = true
		}
	}
	var moved []netip.Addr
	for _, p := range was {
		for _, a := range p.IPs {
			if !owns[owned{p.PodRef, a}] && (s.RemoteNamespaces == nil || slices.Contains(s.RemoteNamespaces, p.Namespace)) {
				moved = append(moved, a)
			}
		}
	}
	e.flows.RecheckLater(flows.PolicyChanged, moved)
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
