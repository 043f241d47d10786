package enforcer

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/plan"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/policy"
)

// planOf returns what the kernel must hold for a snapshot, by pod.
func (e *Enforcer) planOf(s *policy.Snapshot) dataplane.Subjects {
	return plan.Of(s, plan.Placement{Homes: e.homes, BridgesUnseen: e.unseen}, e.lists)
}

// tablesPart is a dataplane that has its grants in the nft tables. They take it behind Activate or
// Isolate.
type tablesPart interface {
	// AddTo adds the grants for a state to the subjects of the tables. It writes nothing.
	AddTo(tables *nft.State, st dataplane.State)
}

// tablesState renders a plan for the nft tables.
func (e *Enforcer) tablesState(subjects dataplane.Subjects) nft.State {
	network := e.intercept.Network()
	s := nft.State{Gateways: e.gateways, Known: e.known, Endpoint: e.cfg.Endpoint, Resolvers: e.intercept.Serving(), PodRanges: network.PodRanges, Services: network.Services, Answering: network.Backends}
	intercepted := map[netip.Addr]bool{}
	for _, p := range subjects.Sorted() {
		for _, a := range p.Addrs {
			if p.Intercept && !network.IsBackend(a) {
				s.Intercepted = append(s.Intercepted, a)
				intercepted[a] = true
			}
		}
		if p.Audited {
			s.Audited = append(s.Audited, p.Addrs...)
		}
		if !p.Isolated {
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
	e.addTiers(&s, subjects)
	e.addNode(&s, subjects)
	e.addNodeDNS(&s, network)
	e.addSubjects(&s, subjects)
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

// addSubjects renders the subjects of a plan with their rule lists and grants for the nft tables.
func (e *Enforcer) addSubjects(s *nft.State, subjects dataplane.Subjects) {
	s.Serving, s.DNS = e.servingDNS()
	s.Recheck = e.flows.Recorded()
	e.ruleLists.AddTo(s, subjects, e.members)
	e.plane.AddTo(s, e.state(subjects))
}

// state returns what the dataplane is to hold.
func (e *Enforcer) state(subjects dataplane.Subjects) dataplane.State {
	return dataplane.State{Subjects: subjects, Grants: e.grants}
}

// servingDNS returns the addresses on which agents serve DNS, and those that every subject
// may dial for DNS, sorted: equal states have to be written once.
func (e *Enforcer) servingDNS() (serving, resolvers []netip.Addr) {
	pods, _ := e.predecessors()
	serving = slices.Collect(maps.Keys(pods))
	for dialled, at := range e.intercept.Serving() {
		serving = append(serving, at)
		if !e.cfg.FailClosed || slices.Contains(e.cfg.Endpoint, dialled) {
			resolvers = append(resolvers, dialled)
		}
	}
	slices.SortFunc(serving, netip.Addr.Compare)
	slices.SortFunc(resolvers, netip.Addr.Compare)
	return serving, resolvers
}

// members returns who peers are in the newest snapshot that knows them.
func (e *Enforcer) members(p policy.Peer) *policy.PeerSet {
	if s := e.coming.PeerSet(p); s != nil {
		return s
	}
	return e.snapshot.PeerSet(p)
}
