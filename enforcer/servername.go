package enforcer

import (
	"context"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/handover"
	"github.com/namegate/namegate/enforcer/intercept"
	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// Connections that only rules with ServerName allow are led to the agent's relay, which asks here where it may connect.

// judging is what connections are judged by: what the tables have.
type judging struct {
	snapshot *policy.Snapshot
	subjects dataplane.Subjects
	node     bool // rules of the node judge what it sends
	// strays are addresses of subjects that had a home, and have none.
	strays map[netip.Addr]bool
}

// newJudging follows what connections were judged by before, nil for nothing.
func newJudging(before *judging, s *policy.Snapshot, subjects dataplane.Subjects) *judging {
	out := &judging{snapshot: s, subjects: subjects, strays: map[netip.Addr]bool{}}
	if before != nil {
		for ref, was := range before.subjects {
			p := subjects[ref]
			if p == nil || !p.Isolated && p.Ingress == nil { // whose homes are not looked for
				continue
			}
			for _, a := range p.Addrs {
				_, had := was.Homes[a]
				if _, has := p.Homes[a]; !has && (had || before.strays[a]) {
					out.strays[a] = true
				}
			}
		}
	}
	if v := s.Node(); v != nil {
		if p := subjects[v.Pod.PodRef]; p != nil && p.Node != nil {
			out.node = len(p.Tiers.Node[policy.Local].Egress)+len(p.Tiers.Node[policy.Forwarded].Egress) > 0
		}
	}
	return out
}

// Egress decides about a connection of TCP that a pod dialled and that was led to the relay, which connects where the
// verdict is AllowFlow or, with the name of its hello, CheckFlow. name "" is before the hello: the verdict is CheckFlow then
// where a name is needed. It waits for no write.
func (e *Enforcer) Egress(source netip.Addr, to netip.AddrPort, name fqdn.Name) policy.Egress {
	out, in := e.relayed(source, to, name, false)
	if in == nil || out.Verdict == policy.DenyFlow {
		return out
	}
	a := to.Addr()
	_, pod := in.snapshot.Pod(a)
	if !e.arrives(in, source, to) || pod || intercept.InRange(a) || a.IsLoopback() || a.IsUnspecified() || a.IsMulticast() || e.cfg.Inside != nil && e.cfg.Inside(a) || e.isOwn(a) {
		out.Verdict, out.By = policy.DenyFlow, nil
	}
	return out
}

// isOwn tells whether an address is this node's. It asks for one route: reading all addresses takes a millisecond on a node
// with many pods, for each connection.
func (e *Enforcer) isOwn(a netip.Addr) bool {
	iface, err := e.k.Links.Route(a)
	return err == nil && iface == "lo"
}

// arrives tells whether the node's rules for what it forwards let the connection come: the kernel asks them of what leaves.
func (e *Enforcer) arrives(in *judging, source netip.Addr, to netip.AddrPort) bool {
	flow := policy.Flow{Protocol: policy.TCP, Dialled: to, Reached: to, Source: policy.CleanAddr(source), Out: policy.AnyInterface}
	if ref, known := in.snapshot.Pod(source); known && in.subjects[ref] != nil {
		flow.In = in.subjects[ref].Homes[flow.Source].Iface
	}
	return policy.Arrives(in.snapshot.Node(), in.snapshot, &flow)
}

// Keeps tells whether a connection that Egress allowed to a pod stays. A name that ended counts as long as it is
// remembered, as for other connections. name "": what was copied unread stays where no name is needed.
func (e *Enforcer) Keeps(pod policy.PodRef, source netip.Addr, to netip.AddrPort, name fqdn.Name) bool {
	d, _ := e.relayed(source, to, name, true)
	return d.Pod == pod && (d.Verdict == policy.AllowFlow || d.Verdict == policy.CheckFlow && name != "")
}

// RelayMark is the packet mark of what the relay dials: another program leads it nowhere else.
func (e *Enforcer) RelayMark() uint32 { return e.cfg.Candidate }

// Dialling is called before the relay connects from a bound port of the node: rules of the node judge what is forwarded
// then, and not what the node's own sockets send.
func (e *Enforcer) Dialling(ctx context.Context, local, to netip.AddrPort) error {
	if in := e.judging.Load(); in == nil || !in.node {
		return nil
	}
	return e.tablesInForce().Dialling(ctx, local.Port(), netip.AddrPortFrom(policy.CleanAddr(to.Addr()), to.Port()))
}

// relayed judges a connection as if it reached what it dialled.
func (e *Enforcer) relayed(source netip.Addr, to netip.AddrPort, name fqdn.Name, open bool) (out policy.Egress, in *judging) {
	source, to = policy.CleanAddr(source), netip.AddrPortFrom(policy.CleanAddr(to.Addr()), to.Port())
	if in = e.judging.Load(); in == nil {
		return out, nil
	}
	ref, known := in.snapshot.Pod(source)
	p := in.subjects[ref]
	switch {
	case !known:
		return out, in
	case p == nil: // no policy selects it
		if slices.ContainsFunc(in.snapshot.Pods(), func(p policy.Pod) bool { return p.PodRef == ref && p.Local() && !p.HostNetwork }) {
			out.Pod, out.Verdict = ref, policy.AllowFlow
		}
		return out, in
	case !slices.Contains(p.Addrs, source), slices.Contains(p.Homeless, source), in.strays[source]:
		return out, in
	}
	out = e.verdict(in, p, to, "", open)
	if out.Verdict == policy.CheckFlow && name != "" {
		// What another rule says of it would count although the name is another.
		if named := e.verdict(in, p, to, name, open); named.Verdict == policy.CheckFlow {
			out = named
		} else {
			out.Verdict = policy.DenyFlow
		}
	}
	return out, in
}

// verdict is that of the views of a subject, of which one is enough.
func (e *Enforcer) verdict(in *judging, p *dataplane.Subject, to netip.AddrPort, name fqdn.Name, open bool) policy.Egress {
	flow := policy.Flow{Protocol: policy.TCP, Dialled: to, Reached: to, ByName: true}
	flow.Implied, flow.Exempt = e.isDNS(conntrack.Flow{Dst: to, Peer: to})
	ports, rules := e.grants.Opened(p.Pod, to.Addr(), open, name)
	flow.Open = ports
	out := policy.Egress{Pod: p.Pod}
	judge := policy.Judge
	if open {
		judge = policy.Kept
	}
	for _, v := range p.Views {
		enter(&flow, v, rules)
		if verdict, by := judge(v, in.snapshot, &flow); out.View == nil || verdict == policy.AllowFlow || out.Verdict == policy.DenyFlow {
			out.View, out.Verdict, out.By = v, verdict, by
		}
	}
	if out.Verdict == policy.DenyFlow && !p.Isolated {
		out.Verdict, out.By = policy.AllowFlow, nil
	}
	return out
}

// rightsLost has the relay ask Keeps of all its connections.
func (e *Enforcer) rightsLost() {
	if e.cfg.RightsLost != nil {
		e.cfg.RightsLost()
	}
}

// forgetRelays gives back the addresses of relays of earlier agents that are not in use any more. The caller holds apply,
// and writes the tables.
func (e *Enforcer) forgetRelays() {
	e.relaysBefore = slices.DeleteFunc(e.relaysBefore, func(at netip.AddrPort) bool {
		if handover.InUse(at) {
			return false
		}
		if err := e.k.Links.DelAddr(at.Addr()); err != nil {
			e.log.Warn("an address of an earlier agent stays", "address", at.Addr(), "error", err)
		}
		return true
	})
}
