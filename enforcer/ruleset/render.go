package ruleset

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/intercept"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/policy"
)

// Input is all that the tables depend on.
type Input struct {
	layout.Mode
	Subjects dataplane.Subjects
	// InForce and Coming are the snapshots with the members of peers, nil for none: rule lists have those of
	// both. Ordered rules may deny, so they have those of Coming only for peers that InForce does not have.
	InForce, Coming *policy.Snapshot
	// Bound are the homes of this node's pods, where there are rules for ingress: these ask for sources.
	Bound map[netip.Addr]link.Home
	// Unsettled is State.Unsettled.
	Unsettled []netip.Addr
	// Entered are rules, sorted, whose sets of entries stay beside those of Subjects.
	Entered []policy.RuleID
	Grants  dataplane.Grants // with Mode.HasGrants
	// Known are the addresses of this node's pods, Gateways the node's link-local addresses, and
	// Recheck the addresses whose connections are still to be judged again.
	Known, Gateways, Recheck []netip.Addr
	DNS                      DNS
	Relays                   layout.Relays
}

// DNS is where queries of pods and of the node are led.
type DNS struct {
	Network intercept.Network
	// Endpoint are the virtual addresses, and Fallback the backends of their queries while no agent is alive.
	Endpoint []netip.Addr
	Fallback []netip.AddrPort
	// Serving maps the addresses that pods dial to those of this agent, and Predecessor those of the
	// agent before to the addresses that were dialled.
	Serving, Predecessor map[netip.Addr]netip.Addr
	// FailClosed: of the resolvers only Endpoint may be dialled while no agent is alive.
	FailClosed bool
	// Node is that of the node's own queries, nil for none.
	Node *layout.NodeDNS
}

// Render returns the wanted tables. It changes nothing of in; memo is of the caller's last call, or empty.
func Render(in *Input, memo *layout.Memo) []nft.Table { return memo.Render(in.Mode, State(in)) }

// State returns what the tables are to hold.
func State(in *Input) layout.State {
	subjects := in.Subjects.Sorted()
	s := layout.State{
		Relays: in.Relays, Unsettled: in.Unsettled,
		Gateways: in.Gateways, Known: in.Known, Recheck: in.Recheck, Endpoint: in.DNS.Endpoint, Backends: in.DNS.Fallback,
		Resolvers: in.DNS.Serving, Predecessor: in.DNS.Predecessor, NodeDNS: in.DNS.Node,
		PodRanges: in.DNS.Network.PodRanges, Services: in.DNS.Network.Services, Answering: in.DNS.Network.Backends,
	}
	addDNS(&s, in, subjects)
	for _, p := range subjects {
		if p.Audited {
			s.Audited = append(s.Audited, p.Addrs...)
		}
		if p.Isolated {
			s.Selected = append(s.Selected, p.Addrs...)
			if slices.ContainsFunc(p.Views, func(v *policy.View) bool { return !v.ImpliesDNS() }) {
				s.DNSByRules = append(s.DNSByRules, p.Addrs...)
			}
			if p.Drop {
				s.Dropped = append(s.Dropped, p.Addrs...)
			}
		}
		addHomes(&s, p)
	}
	addBound(&s, in)
	addTiers(&s, in, subjects)
	addNode(&s, in)
	addLists(&s, in, subjects)
	if in.HasGrants {
		addGrants(&s, in.Subjects, in.Grants)
	}
	return s
}

// tierMembers returns the members of a peer of ordered rules.
func (in *Input) tierMembers(p policy.Peer) *policy.PeerSet {
	return cmp.Or(in.InForce.PeerSet(p), in.Coming.PeerSet(p))
}

// addHomes adds the homes of a subject that is default-deny, or has rules for ingress.
func addHomes(s *layout.State, p *dataplane.Subject) {
	if !p.Isolated && p.Ingress == nil {
		return
	}
	s.Nowhere = append(s.Nowhere, p.Homeless...)
	for _, a := range p.Addrs {
		h, ok := p.Homes[a]
		if !ok {
			continue
		}
		addHome(s, a, h)
		if p.Isolated && !h.Bridged() {
			s.Ifaces = append(s.Ifaces, h.Iface)
		}
		if p.Ingress != nil && h.Bridged() {
			s.IngressPorts = append(s.IngressPorts, h.Port)
		}
	}
}

// addHome adds a home, from which no other source may come.
func addHome(s *layout.State, a netip.Addr, h link.Home) {
	s.Homes = append(s.Homes, layout.Home{Iface: h.Iface, Addr: a})
	if h.Bridged() {
		s.PortHomes = append(s.PortHomes, layout.Home{Iface: h.Port, Addr: a})
		s.Ports = append(s.Ports, h.Port)
	} else {
		s.Bound = append(s.Bound, h.Iface)
	}
}

// addBound adds the homes of pods that are no subjects.
func addBound(s *layout.State, in *Input) {
	known := map[netip.Addr]bool{}
	for _, h := range s.Homes {
		known[h.Addr] = true
	}
	for _, a := range s.Nowhere {
		known[a] = true
	}
	for _, a := range slices.SortedFunc(maps.Keys(in.Bound), netip.Addr.Compare) {
		if !known[a] {
			addHome(s, a, in.Bound[a])
		}
	}
}

// addDNS adds whose queries are led to the agent, and where DNS is served. Lists are sorted: equal
// states have to be written once.
func addDNS(s *layout.State, in *Input, subjects []*dataplane.Subject) {
	intercepted := map[netip.Addr]bool{}
	for _, p := range subjects {
		for _, a := range p.Addrs {
			if p.Intercept && !in.DNS.Network.IsBackend(a) {
				s.Intercepted = append(s.Intercepted, a)
				intercepted[a] = true
			}
		}
	}
	for _, a := range in.Known {
		if !intercepted[a] {
			s.Plain = append(s.Plain, a)
		}
	}
	for _, b := range in.DNS.Network.Backends {
		if !slices.Contains(in.Known, b.Addr()) && !slices.Contains(s.Plain, b.Addr()) {
			s.Plain = append(s.Plain, b.Addr())
		}
	}
	for serving := range in.DNS.Predecessor {
		s.Serving = append(s.Serving, serving)
	}
	for dialled, at := range in.DNS.Serving {
		s.Serving = append(s.Serving, at)
		if !in.DNS.FailClosed || slices.Contains(in.DNS.Endpoint, dialled) {
			s.DNS = append(s.DNS, dialled)
		}
	}
	slices.SortFunc(s.Serving, netip.Addr.Compare)
	slices.SortFunc(s.DNS, netip.Addr.Compare)
}

// addTiers adds the ordered rules of subjects and their peers.
func addTiers(s *layout.State, in *Input, subjects []*dataplane.Subject) {
	for _, id := range withRules(in.Entered, in.Subjects) {
		s.Entries = append(s.Entries, string(id))
	}
	peers := map[policy.Peer]bool{}
	of := func(rules func(*dataplane.Subject) *dataplane.Tiers) (all []layout.Tiers) {
		at := map[string]int{}
		for _, p := range subjects {
			t := rules(p)
			if t == nil {
				continue
			}
			i, there := at[t.ID]
			if !there {
				i = len(all)
				at[t.ID] = i
				all = append(all, t.Tiers)
				for _, peer := range t.Peers {
					peers[peer] = true
				}
			}
			all[i].Subjects = append(all[i].Subjects, p.Addrs...)
		}
		slices.SortFunc(all, func(a, b layout.Tiers) int { return cmp.Compare(a.ID, b.ID) })
		return all
	}
	s.Tiers = of(func(p *dataplane.Subject) *dataplane.Tiers {
		if !p.Isolated {
			return nil
		}
		return p.Tiers
	})
	s.Ingress = of(func(p *dataplane.Subject) *dataplane.Tiers { return p.Ingress })
	for _, peer := range slices.SortedFunc(maps.Keys(peers), policy.Peer.Compare) {
		s.Peers = append(s.Peers, PeerSet(dataplane.PeersName(peer), peer.Kind, in.tierMembers(peer)))
	}
}

// RulesOf returns the rules for which addresses may be granted to subjects, sorted.
func RulesOf(subjects dataplane.Subjects) []policy.RuleID {
	return slices.Clone(withRules(nil, subjects))
}

// withRules returns sorted rules and those of RulesOf.
func withRules(all []policy.RuleID, subjects dataplane.Subjects) []policy.RuleID {
	seen := map[*policy.RuleID]bool{}
	for _, p := range subjects {
		if len(p.Entries) == 0 || seen[&p.Entries[0]] {
			continue // many share their entries
		}
		seen[&p.Entries[0]] = true
		all = dataplane.UnionOf(all, p.Entries)
	}
	return all
}
