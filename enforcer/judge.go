package enforcer

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/flows"
	"github.com/namegate/namegate/enforcer/intercept"
	"github.com/namegate/namegate/enforcer/plan"
	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/policy"
)

// judge returns whether a connection is allowed to the pod of the plan in force that has
// its source address. A grant that ended counts: connections outlive their grants. A grant
// that is not remembered, because an agent was restarted or a pod had too many, does not.
func (e *Enforcer) judge() flows.Judge {
	var subjects dataplane.Subjects // made for the first connection, as owners
	var owners map[netip.Addr]policy.PodRef
	own := e.ownAddrs()
	return func(f conntrack.Flow, why flows.Reason) bool {
		if owners == nil {
			subjects = e.inForce()
			owners = plan.Owners(subjects)
		}
		p := subjects[owners[f.Src.Addr()]]
		if p == nil || !p.Isolated { // rules for ingress may have admitted it, for the next pod of its address too
			to := subjects[owners[f.Peer.Addr()]]
			return to != nil && to.Ingress != nil && (why == flows.Released || mayReach(to, f))
		}
		return e.covers(p, f, why == flows.RulesLost, own)
	}
}

// comingAddrs returns the addresses that a plan makes default-deny, with their subjects,
// without those that cannot have opened what is allowed.
func (e *Enforcer) comingAddrs(last, subjects dataplane.Subjects) map[netip.Addr]*dataplane.Subject {
	known := plan.Known(e.snapshot)
	coming := map[netip.Addr]*dataplane.Subject{}
	for ref, p := range subjects {
		if !p.Isolated {
			continue
		}
		was := last[ref]
		for _, a := range p.Addrs {
			if e.recovered.judged(a, ref) || was != nil && was.Isolated && slices.Contains(was.Addrs, a) {
				continue
			}
			if _, seen := slices.BinarySearchFunc(known, a, netip.Addr.Compare); seen || e.snapshot == nil || e.grants.OpenedAny(ref, a.Is6()) || p.Peers != nil || p.Tiers != nil {
				coming[a] = p
			}
		}
	}
	return coming
}

// admitOpen judges the connections that pods had open before their addresses become
// selected: the allowed ones are admitted, so that they never notice. The
// rest has no admission and is cut by becoming selected. inForce has the rules for ingress.
func (e *Enforcer) admitOpen(coming map[netip.Addr]*dataplane.Subject, inForce dataplane.Subjects) error {
	own, judged := e.ownAddrs(), ingressAddrs(inForce)
	return e.flows.Admit(slices.Collect(maps.Keys(coming)), func(f conntrack.Flow) bool {
		return mayReach(judged[f.Peer.Addr()], f) && e.covers(coming[f.Src.Addr()], f, false, own)
	})
}

// isolateQuietly makes coming subjects with ordered rules default-deny, and admits once more:
// no rule admits a connection that they opened since the last admitOpen. Until it is admitted,
// replies to it are dropped without an answer, which would end the connection.
func (e *Enforcer) isolateQuietly(ctx context.Context, s *policy.Snapshot, subjects dataplane.Subjects, coming map[netip.Addr]*dataplane.Subject) error {
	quiet := maps.Clone(subjects)
	ordered := false
	for _, p := range coming {
		if p.Tiers != nil {
			silent := *subjects[p.Pod]
			silent.Drop = true
			quiet[p.Pod], ordered = &silent, true
		}
	}
	if !ordered || e.snapshot == nil {
		return nil
	}
	if err := e.applyTables(ctx, quiet, s, e.beginning(subjects)...); err != nil {
		return err
	}
	return e.admitOpen(coming, e.plan)
}

// covers tells whether a pod may have opened a connection: by a grant, also an expired
// one of a rule that accepts; to a resolver or the endpoint; to itself; to a peer. It may
// have opened one that only policies of the standards deny, unless all rules were in force
// when it opened.
func (e *Enforcer) covers(p *dataplane.Subject, f conntrack.Flow, fresh bool, own func() []netip.Addr) bool {
	led := intercept.IsRelay(f.Peer) // the relay judges it as if it reached what it dialled
	if led {
		f.Peer = f.Dst
	}
	flow := policy.Flow{Protocol: policy.Protocol(f.Protocol), Dialled: f.Dst, Reached: f.Peer}
	flow.Implied, flow.Exempt = e.isDNS(f)
	flow.ByName = e.countsByName(f.Dst, f.Peer, own)
	ports, rules := e.grants.Opened(p.Pod, f.Dst.Addr(), true, "")
	flow.Open = ports
	return slices.ContainsFunc(p.Views, func(v *policy.View) bool {
		enter(&flow, v, rules)
		judge := policy.Kept
		if fresh {
			judge = policy.Judge
		}
		verdict, _ := judge(v, p.Snapshot, &flow)
		return verdict == policy.AllowFlow || led && verdict == policy.CheckFlow
	})
}

// enter has a flow have the entries of rules of a view.
func enter(flow *policy.Flow, v *policy.View, rules []policy.RuleID) {
	flow.Entries = flow.Entries[:0]
	if len(rules) == 0 {
		return
	}
	for r := range v.Rules.Identified() {
		if r.ID != "" && slices.Contains(rules, r.ID) {
			flow.Entries = append(flow.Entries, r)
		}
	}
}

// CountsByName tells whether a connection to what is dialled may be allowed by name, although it leads to what
// is reached.
func (e *Enforcer) CountsByName(dialled, reached netip.AddrPort) bool {
	return e.countsByName(dialled, reached, e.ownAddrs())
}

func (e *Enforcer) countsByName(dialled, reached netip.AddrPort, own func() []netip.Addr) bool {
	network := e.intercept.Network()
	return dialled == reached || network.IsService(dialled.Addr()) || slices.Contains(own(), reached.Addr())
}

// ownAddrs returns this node's addresses, which are read once: a pod may have thousands of connections that
// are led to another address than it dialled.
func (e *Enforcer) ownAddrs() func() []netip.Addr {
	return sync.OnceValue(func() []netip.Addr {
		own, err := e.k.Links.Addrs()
		if err != nil {
			e.log.Warn("cannot read this node's addresses; a connection that is led to it counts as led elsewhere", "error", err)
		}
		return own
	})
}

// isDNS tells whether a connection is to a resolver, and whether to an agent, which may be by
// the address of a resolver.
func (e *Enforcer) isDNS(f conntrack.Flow) (resolver, agent bool) {
	if f.Dst.Port() != dnsPort {
		return false, false
	}
	dialled, serving := e.intercept.Lookup(f.Dst.Addr())
	_, served := e.intercept.Lookup(f.Peer.Addr())
	return dialled && !e.cfg.FailClosed, serving || served || e.predecessor.Serves(f.Dst.Addr()) || e.predecessor.Serves(f.Peer.Addr())
}
