package enforcer

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/flows"
	"github.com/namegate/namegate/enforcer/plan"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
)

// recoveredState is the state of an earlier agent as its tables have it: the pod and the
// home of each address. Connections of an address that is still the same pod's have been
// judged; the admission of others is withdrawn.
type recoveredState struct {
	layout.Earlier
	// isolated addresses were default-deny: connections of others have not been judged.
	isolated map[netip.Addr]bool
	// ingress addresses had rules for ingress.
	ingress map[netip.Addr]bool
	homes   map[netip.Addr]link.Home
	// recheck are the addresses whose connections it had yet to recheck.
	recheck map[netip.Addr]bool
	// peers are the members of peers of rule lists, as far as they were read.
	peers map[policy.Peer]layout.PeerSet
}

// readRecovered completes what the nft tables have of an earlier agent, which must have been set up, by its recheck
// set and the addresses that the dataplane found isolated.
func (e *Enforcer) readRecovered(earlier layout.Earlier, isolated []netip.Addr) (in recoveredState, err error) {
	in = recoveredState{Earlier: earlier, isolated: map[netip.Addr]bool{}, ingress: map[netip.Addr]bool{}, homes: map[netip.Addr]link.Home{}, peers: map[policy.Peer]layout.PeerSet{}}
	for _, a := range slices.Concat(earlier.Selected, isolated) {
		in.isolated[a] = true
	}
	for _, a := range earlier.Ingress {
		in.ingress[a] = true
	}
	if in.recheck, err = e.flows.Recover(); err != nil {
		return in, err
	}
	if len(in.Subjects) == 0 { // the tables, which tell whose the addresses are, were lost
		maps.Copy(in.recheck, in.isolated)
	}
	for _, h := range earlier.Homes {
		in.homes[h.Addr] = link.Home{Iface: h.Iface}
	}
	for _, p := range earlier.PortHomes {
		in.homes[p.Addr] = link.Home{Iface: in.homes[p.Addr].Iface, Port: p.Iface}
	}
	return in, nil
}

// same tells whether an address is still the pod's that it was.
func (in recoveredState) same(a netip.Addr, ref policy.PodRef) bool {
	return in.Subjects[a] == dataplane.PodID(ref)
}

// reused tells whether an address of another pod is a subject's now.
func (in recoveredState) reused(subjects dataplane.Subjects) bool {
	for ref, p := range subjects {
		if slices.ContainsFunc(p.Addrs, func(a netip.Addr) bool { return in.Subjects[a] != "" && !in.same(a, ref) }) {
			return true
		}
	}
	return false
}

// judged tells whether the connections of an address have been judged for the pod.
func (in recoveredState) judged(a netip.Addr, ref policy.PodRef) bool {
	return in.isolated[a] && in.same(a, ref)
}

// narrows tells whether a subject may do less than its earlier rules admitted, or has yet to be rechecked. Its ordered
// rules have chains; peers of these but networks may have had other members.
func (in recoveredState) narrows(p *dataplane.Subject, chains map[netip.Addr]string) bool {
	return p.Tiers != nil && slices.ContainsFunc(p.Tiers.Peers, func(peer policy.Peer) bool { return peer.Kind != policy.PeerNetworks }) ||
		slices.ContainsFunc(p.Addrs, func(a netip.Addr) bool {
			same := in.same(a, p.Pod)
			list, had := in.Lists[a]
			other := had && same && !p.Peers.All() && (p.Peers == nil || p.Peers.ID != list)
			return in.recheck[a] || other || p.Tiers != nil && (!same || in.TierChains[a] == "" || in.TierChains[a] != chains[a])
		})
}

// among returns the subjects of a plan that the earlier agent isolated, and the node if it had rules.
func (in recoveredState) among(next dataplane.Subjects) dataplane.Subjects {
	out := maps.Clone(next)
	maps.DeleteFunc(out, func(ref policy.PodRef, p *dataplane.Subject) bool {
		if p.Node != nil {
			return !in.JudgesNode
		}
		return !p.Isolated || !slices.ContainsFunc(p.Addrs, func(a netip.Addr) bool { return in.judged(a, ref) })
	})
	return out
}

// home returns the home that an earlier agent knew for a pod's address, as long as
// that one stands: a pod that hides its address, or lets another's move, gains
// nothing from a restart.
func (in recoveredState) home(a netip.Addr, ref policy.PodRef, stands func(link.Home) bool) (link.Home, bool) {
	h, ok := in.homes[a]
	if !ok || !in.same(a, ref) || h.Iface == "" || !stands(h) {
		return link.Home{}, false
	}
	return h, true
}

// withdrawStale withdraws the earlier agent's admissions of connections of addresses that
// are another subject's now. Those of addresses of no subject go with the rules that deny without
// an admission, which are in force still, unless their pod is there still.
func (e *Enforcer) withdrawStale(s *policy.Snapshot, subjects dataplane.Subjects) error {
	earlier := slices.AppendSeq(slices.Collect(maps.Keys(e.recovered.Subjects)), maps.Keys(e.recovered.recheck))
	if len(earlier) == 0 {
		return nil
	}
	owner, by := plan.Owners(subjects), map[flows.Reason][]netip.Addr{}
	for _, a := range earlier {
		ref, ok := owner[a]
		if there, _ := s.Pod(a); !ok && e.recovered.same(a, there) {
			by[flows.Released] = append(by[flows.Released], a)
		} else if !ok || !e.recovered.same(a, ref) {
			by[flows.PolicyChanged] = append(by[flows.PolicyChanged], a)
		}
	}
	for why, addrs := range by {
		e.flows.Recheck(why, addrs)
	}
	return e.flows.Withdraw(slices.DeleteFunc(by[flows.PolicyChanged], func(a netip.Addr) bool { _, ok := owner[a]; return ok }))
}
