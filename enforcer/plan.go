package enforcer

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/policy"
)

// planOf returns what the kernel must hold for a snapshot, by pod.
func (e *Enforcer) planOf(s *policy.Snapshot) map[policy.PodRef]*podPlan {
	out := map[policy.PodRef]*podPlan{}
	if s == nil {
		return out
	}
	for _, v := range s.Views {
		p := &podPlan{
			ref: v.Pod.PodRef, addrs: v.Pod.IPs, intercept: true, in: s,
			selected: v.Enforced, readied: v.Enforced, drop: v.Enforced && v.Denied == policy.Drop,
			homes: map[netip.Addr]link.Home{}, unseen: e.unseen,
		}
		if v.Enforced {
			p.ports, p.peers = v.PortSets(), e.lists.of(v.PeerRules())
			for _, a := range p.addrs {
				if h, ok := e.homes[a]; ok && h.nowhere() {
					p.nowhere = append(p.nowhere, a)
				} else if ok {
					p.homes[a] = h.Home
				}
			}
		}
		out[p.ref] = p
	}
	return out
}

// union is the plan between two snapshots: every pod has the port sets of both,
// and is denied, intercepted and at home as before. An address that changes hands
// is judged by the coming pod's chain at once: the pod that had it is gone. The closed
// pods are default-deny already, if they are to be.
func union(now, next map[policy.PodRef]*podPlan, closed map[policy.PodRef]bool) map[policy.PodRef]*podPlan {
	out := map[policy.PodRef]*podPlan{}
	coming := map[netip.Addr]policy.PodRef{}
	for ref, n := range next {
		for _, a := range n.addrs {
			coming[a] = ref
		}
	}
	held := map[netip.Addr]policy.PodRef{}
	for ref, p := range now {
		for _, a := range p.addrs {
			held[a] = ref
		}
	}
	for ref, p := range now {
		both := *p
		for _, a := range p.addrs {
			if other, changes := coming[a]; changes && other != ref {
				both.handed = append(both.handed, a)
			}
		}
		if n := next[ref]; n != nil {
			both.ports = slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(p.ports), n.ports...))))
			both.peers = p.peers.and(n.peers)
			both.selected = p.selected || closed[ref] && n.selected
			both.readied = p.readied || n.readied
		}
		if n := next[ref]; n != nil {
			both.taken = slices.DeleteFunc(slices.Clone(n.addrs), func(a netip.Addr) bool { return slices.Contains(p.addrs, a) })
		}
		out[ref] = &both
	}
	for ref, n := range next {
		if now[ref] != nil {
			continue
		}
		fresh := *n
		fresh.selected, fresh.drop, fresh.intercept = closed[ref] && n.selected, false, false
		fresh.homes, fresh.nowhere = nil, nil
		fresh.taken = takenFrom(held, ref, n.addrs)
		fresh.addrs = slices.DeleteFunc(slices.Clone(n.addrs), func(a netip.Addr) bool { return slices.Contains(fresh.taken, a) })
		out[ref] = &fresh
	}
	return out
}

// takenFrom returns those of a pod's addresses that another pod holds.
func takenFrom(held map[netip.Addr]policy.PodRef, ref policy.PodRef, addrs []netip.Addr) []netip.Addr {
	var out []netip.Addr
	for _, a := range addrs {
		if owner, taken := held[a]; taken && owner != ref {
			out = append(out, a)
		}
	}
	return out
}

// grantKeys are the sets that a plan's chains ask.
func grantKeys(plan map[policy.PodRef]*podPlan) iter.Seq[grantKey] {
	return func(yield func(grantKey) bool) {
		for ref, p := range plan {
			for _, ports := range p.ports {
				for _, f := range ipVersions {
					if !yield(grantKey{ref, ports, f}) {
						return
					}
				}
			}
		}
	}
}

// asks tells whether a plan's chains ask a set.
func asks(plan map[policy.PodRef]*podPlan, key grantKey) bool {
	p := plan[key.pod]
	return p != nil && slices.Contains(p.ports, key.ports)
}

func sortedPods(plan map[policy.PodRef]*podPlan) []*podPlan {
	return slices.SortedFunc(maps.Values(plan), func(a, b *podPlan) int {
		return cmp.Or(strings.Compare(a.ref.Namespace, b.ref.Namespace), strings.Compare(a.ref.Name, b.ref.Name), strings.Compare(a.ref.UID, b.ref.UID))
	})
}

// tablesState renders a plan for the nft tables.
func (e *Enforcer) tablesState(plan map[policy.PodRef]*podPlan) nft.State {
	s := nft.State{Gateways: e.gateways, Known: e.known, Endpoint: e.cfg.Endpoint, Resolvers: e.serving, Predecessor: e.departing.addrs, PodRanges: e.network.PodRanges, Answering: e.network.Backends}
	intercepted := map[netip.Addr]bool{}
	for _, p := range sortedPods(plan) {
		for _, a := range p.addrs {
			if p.intercept && !e.isBackend(a) {
				s.Intercepted = append(s.Intercepted, a)
				intercepted[a] = true
			}
		}
		if !p.selected {
			if p.intercept { // and not one that is only made ready
				s.Audited = append(s.Audited, p.addrs...)
			}
			continue
		}
		s.Selected = append(s.Selected, p.addrs...)
		s.Pods = append(s.Pods, p.addrs)
		s.Nowhere = append(s.Nowhere, p.nowhere...)
		if p.drop {
			s.Dropped = append(s.Dropped, p.addrs...)
		}
		for _, a := range p.addrs {
			h, ok := p.homes[a]
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
func (e *Enforcer) staticEntries(plan map[policy.PodRef]*podPlan) map[string][]ipset.Entry {
	out := map[string][]ipset.Entry{}
	for _, s := range staticSets() {
		out[s.Name] = nil
	}
	add := func(set string, entry ipset.Entry) {
		name := setPrefix(versionOf(entry.Addr)) + set
		out[name] = append(out[name], entry)
	}
	for _, p := range sortedPods(plan) {
		if p.readied {
			for _, a := range p.judged() {
				add(setJudged, ipset.Entry{Addr: a})
			}
		}
		if !p.selected {
			continue
		}
		for _, a := range p.addrs {
			add(setSelected, ipset.Entry{Addr: a})
			if h, ok := p.homes[a]; ok && p.byIface(h) {
				add(setHome, ipset.Entry{Addr: a, Iface: h.Iface})
			}
		}
	}
	for a := range e.owed {
		add(setOwed, ipset.Entry{Addr: a})
	}
	for serving := range e.departing.addrs {
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
func (e *Enforcer) wantedChains(plan map[policy.PodRef]*podPlan) map[chainsKey]iptables.Chains {
	out := map[chainsKey]iptables.Chains{}
	pods := sortedPods(plan)
	for _, f := range ipVersions {
		kept := e.rendered[f]
		maps.DeleteFunc(kept, func(ref policy.PodRef, _ rendering) bool { return plan[ref] == nil })
		r := ruleset{family: f, mark: e.cfg.Mark, pods: pods, kept: kept, keptPeers: e.renderedPeers[f], refused: e.refusedPeers}
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
