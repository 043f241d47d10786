package enforcer

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/dataplane/xtables"
	"github.com/namegate/namegate/enforcer/grants"
	"github.com/namegate/namegate/enforcer/plan"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/policy"
)

// planOf returns what the kernel must hold for a snapshot, by pod.
func (e *Enforcer) planOf(s *policy.Snapshot) dataplane.Subjects {
	return plan.Of(s, plan.Placement{Homes: e.homes, BridgesUnseen: e.unseen}, e.lists)
}

// grantKeys yields the grant sets that a plan's chains ask.
func grantKeys(plan dataplane.Subjects) iter.Seq[grants.Key] {
	return func(yield func(grants.Key) bool) {
		for ref, p := range plan {
			for _, ports := range p.Grants {
				for _, f := range xtables.Families {
					if !yield(grants.Key{Pod: ref, Ports: ports, IPv6: f == iptables.IPv6}) {
						return
					}
				}
			}
		}
	}
}

// tablesState renders a plan for the nft tables.
func (e *Enforcer) tablesState(subjects dataplane.Subjects) nft.State {
	network := e.intercept.Network()
	s := nft.State{Gateways: e.gateways, Known: e.known, Endpoint: e.cfg.Endpoint, Resolvers: e.intercept.Serving(), Predecessor: e.predecessor.Addrs(), PodRanges: network.PodRanges, Answering: network.Backends}
	intercepted := map[netip.Addr]bool{}
	for _, p := range subjects.Sorted() {
		for _, a := range p.Addrs {
			if p.Intercept && !network.IsBackend(a) {
				s.Intercepted = append(s.Intercepted, a)
				intercepted[a] = true
			}
		}
		if !p.Isolated {
			if p.Intercept { // and not one that is only made ready
				s.Audited = append(s.Audited, p.Addrs...)
			}
			continue
		}
		s.Selected = append(s.Selected, p.Addrs...)
		s.Pods = append(s.Pods, p.Addrs)
		s.Nowhere = append(s.Nowhere, p.Homeless...)
		if p.Drop {
			s.Dropped = append(s.Dropped, p.Addrs...)
		}
		for _, a := range p.Addrs {
			h, ok := p.Homes[a]
			switch {
			case !ok:
			case h.Bridged():
				s.Homes = append(s.Homes, nft.Home{Iface: h.Iface, Addr: a})
				s.PortHomes = append(s.PortHomes, nft.Home{Iface: h.Port, Addr: a})
				s.Ports = append(s.Ports, h.Port)
			default:
				s.Homes = append(s.Homes, nft.Home{Iface: h.Iface, Addr: a})
				s.Ifaces = append(s.Ifaces, h.Iface)
			}
		}
	}
	if !e.cfg.FailClosed {
		s.Backends = e.intercept.Fallback()
	}
	for _, a := range e.known {
		if !intercepted[a] {
			s.Plain = append(s.Plain, a)
		}
	}
	for _, b := range network.Backends {
		if !slices.Contains(e.known, b.Addr()) && !slices.Contains(s.Plain, b.Addr()) {
			s.Plain = append(s.Plain, b.Addr())
		}
	}
	return s
}

// staticEntries renders a plan for the sets that are always there.
func (e *Enforcer) staticEntries(subjects dataplane.Subjects) map[string][]ipset.Entry {
	out := map[string][]ipset.Entry{}
	for _, s := range xtables.StaticSets() {
		out[s.Name] = nil
	}
	add := func(set string, entry ipset.Entry) {
		name := xtables.SetPrefix(xtables.FamilyOf(entry.Addr)) + set
		out[name] = append(out[name], entry)
	}
	for _, p := range subjects.Sorted() {
		if p.Staged {
			for _, a := range p.Dispatched() {
				add(xtables.SetDispatched, ipset.Entry{Addr: a})
			}
		}
		if !p.Isolated {
			continue
		}
		for _, a := range p.Addrs {
			add(xtables.SetSelected, ipset.Entry{Addr: a})
			if h, ok := p.Homes[a]; ok && xtables.ByIface(p, h) {
				add(xtables.SetHome, ipset.Entry{Addr: a, Iface: h.Iface})
			}
		}
	}
	for _, a := range e.flows.Owed() {
		add(xtables.SetOwed, ipset.Entry{Addr: a})
	}
	for serving := range e.predecessor.Addrs() {
		for _, proto := range []policy.Protocol{policy.TCP, policy.UDP} {
			add(xtables.SetEndpoint, ipset.Entry{Addr: serving, Protocol: uint8(proto), Port: 53})
		}
	}
	for dialled, serving := range e.intercept.Serving() {
		for _, proto := range []policy.Protocol{policy.TCP, policy.UDP} {
			add(xtables.SetEndpoint, ipset.Entry{Addr: serving, Protocol: uint8(proto), Port: 53})
			if !e.cfg.FailClosed || slices.Contains(e.cfg.Endpoint, dialled) {
				add(xtables.SetResolvers, ipset.Entry{Addr: dialled, Protocol: uint8(proto), Port: 53})
			}
		}
	}
	return out
}

// wanted is what the rules of a plan are made of.
func (e *Enforcer) wanted(subjects dataplane.Subjects) xtables.Wanted {
	return xtables.Wanted{Subjects: subjects, RefusedPeers: e.refusedPeers, RefusedGrants: e.missing}
}
