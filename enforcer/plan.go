package enforcer

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
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
				for _, f := range ipVersions {
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
	s := nft.State{Gateways: e.gateways, Known: e.known, Endpoint: e.cfg.Endpoint, Resolvers: e.serving, Predecessor: e.predecessor.Addrs(), PodRanges: e.network.PodRanges, Answering: e.network.Backends}
	intercepted := map[netip.Addr]bool{}
	for _, p := range plan.Sorted(subjects) {
		for _, a := range p.Addrs {
			if p.Intercept && !e.isBackend(a) {
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
		s.Backends = e.fallback()
	}
	for _, a := range e.known {
		if !intercepted[a] {
			s.Plain = append(s.Plain, a)
		}
	}
	for _, b := range e.network.Backends {
		if !slices.Contains(e.known, b.Addr()) && !slices.Contains(s.Plain, b.Addr()) {
			s.Plain = append(s.Plain, b.Addr())
		}
	}
	return s
}

// staticEntries renders a plan for the sets that are always there.
func (e *Enforcer) staticEntries(subjects dataplane.Subjects) map[string][]ipset.Entry {
	out := map[string][]ipset.Entry{}
	for _, s := range staticSets() {
		out[s.Name] = nil
	}
	add := func(set string, entry ipset.Entry) {
		name := setPrefix(versionOf(entry.Addr)) + set
		out[name] = append(out[name], entry)
	}
	for _, p := range plan.Sorted(subjects) {
		if p.Staged {
			for _, a := range p.Dispatched() {
				add(setJudged, ipset.Entry{Addr: a})
			}
		}
		if !p.Isolated {
			continue
		}
		for _, a := range p.Addrs {
			add(setSelected, ipset.Entry{Addr: a})
			if h, ok := p.Homes[a]; ok && byIface(p, h) {
				add(setHome, ipset.Entry{Addr: a, Iface: h.Iface})
			}
		}
	}
	for _, a := range e.flows.Owed() {
		add(setOwed, ipset.Entry{Addr: a})
	}
	for serving := range e.predecessor.Addrs() {
		for _, proto := range []policy.Protocol{policy.TCP, policy.UDP} {
			add(setEndpoint, ipset.Entry{Addr: serving, Protocol: uint8(proto), Port: dnsPort})
		}
	}
	for dialled, serving := range e.serving {
		for _, proto := range []policy.Protocol{policy.TCP, policy.UDP} {
			add(setEndpoint, ipset.Entry{Addr: serving, Protocol: uint8(proto), Port: dnsPort})
			if !e.cfg.FailClosed || slices.Contains(e.cfg.Endpoint, dialled) {
				add(setResolvers, ipset.Entry{Addr: dialled, Protocol: uint8(proto), Port: dnsPort})
			}
		}
	}
	return out
}

// wantedChains renders a plan for iptables.
func (e *Enforcer) wantedChains(subjects dataplane.Subjects) map[chainsKey]iptables.Chains {
	out := map[chainsKey]iptables.Chains{}
	pods := plan.Sorted(subjects)
	for _, f := range ipVersions {
		kept := e.rendered[f]
		maps.DeleteFunc(kept, func(ref policy.PodRef, _ rendering) bool { return subjects[ref] == nil })
		r := ruleset{family: f, mark: e.cfg.Mark, pods: pods, kept: kept, keptPeers: e.renderedPeers[f], refused: e.refusedPeers, missing: e.missing}
		for table, chains := range r.render() {
			out[chainsKey{f, table}] = chains
		}
		for chain := range r.keptPeers {
			if out[chainsKey{f, "mangle"}][chain] == nil {
				delete(r.keptPeers, chain)
			}
		}
	}
	return out
}
