package ruleset

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/enforcer/ruleset/lists"
	"github.com/namegate/namegate/policy"
)

// AskedPeers returns the peers of subjects' rule lists, and of rules that share the sets of these, sorted.
func AskedPeers(subjects dataplane.Subjects) []policy.Peer {
	lists, out := map[*dataplane.RuleList]bool{}, map[policy.Peer]bool{}
	for _, s := range subjects {
		if s.Ingress != nil {
			for _, p := range s.Ingress.Listed {
				out[p] = true
			}
		}
		if s.Peers == nil || lists[s.Peers] {
			continue
		}
		lists[s.Peers] = true
		for _, r := range s.Peers.Rules {
			if r.Peer.Kind != policy.PeerAnywhere {
				out[r.Peer] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(out), policy.Peer.Compare)
}

// addLists adds the subjects that are staged, their lists and the peers of these.
func addLists(s *layout.State, in *Input, subjects []*dataplane.Subject) {
	lists := map[string]bool{}
	for _, p := range subjects {
		if !p.Staged {
			if p.Ingress != nil {
				s.Subjects = append(s.Subjects, layout.Subject{ID: dataplane.PodID(p.Pod), Addrs: p.Addrs})
				s.Pods = append(s.Pods, p.Addrs)
			}
			continue
		}
		subject := layout.Subject{ID: dataplane.PodID(p.Pod), Addrs: p.Judged}
		if p.Peers != nil {
			if subject.List = p.Peers.Rendered.ID; !lists[subject.List] {
				lists[subject.List] = true
				s.Lists = append(s.Lists, p.Peers.Rendered)
			}
		}
		s.Subjects = append(s.Subjects, subject)
		s.Pods = append(s.Pods, subject.Addrs)
		// An isolated subject may have addresses that are not: those that it gets next.
		s.Staged = append(s.Staged, subject.Addrs...)
	}
	s.Staged = slices.DeleteFunc(s.Staged, isAmong(s.Selected))
	slices.SortFunc(s.Lists, func(a, b layout.RuleList) int { return cmp.Compare(a.ID, b.ID) })
	for _, peer := range AskedPeers(in.Subjects) {
		s.Peers = append(s.Peers, union(dataplane.ListPeersName(peer), peer.Kind, in.InForce.PeerSet(peer), in.Coming.PeerSet(peer)))
	}
}

// isAmong returns whether a value is among all.
func isAmong[T comparable](all []T) func(T) bool {
	among := map[T]bool{}
	for _, v := range all {
		among[v] = true
	}
	return func(v T) bool { return among[v] }
}

// PeerSet renders members of peers; nil has none.
func PeerSet(name string, kind policy.PeerKind, members *policy.PeerSet) layout.PeerSet {
	if members == nil {
		return layout.PeerSet{Name: name, Kind: kind}
	}
	return layout.PeerSet{Name: name, Kind: kind, Addrs: members.Addrs, Networks: members.Networks, Ports: members.Ports}
}

// union is PeerSet with the members of both.
func union(name string, kind policy.PeerKind, a, b *policy.PeerSet) layout.PeerSet {
	out, more := PeerSet(name, kind, cmp.Or(b, a)), PeerSet(name, kind, a)
	if a == nil || b == nil || a == b {
		return out
	}
	out.Addrs, out.Ports = slices.Concat(out.Addrs, more.Addrs), slices.Concat(out.Ports, more.Ports)
	out.Networks = lists.Disjoint(slices.Concat(out.Networks, more.Networks))
	return out
}

// LostMembers returns the members that peers have in one snapshot and not in the next, of networks the first
// addresses.
func LostMembers(peers []policy.Peer, was, is *policy.Snapshot) map[policy.Peer][]netip.Addr {
	out := map[policy.Peer][]netip.Addr{}
	for _, p := range peers {
		if before := was.PeerSet(p); before != nil && before != is.PeerSet(p) {
			out[p] = Lost(PeerSet("", p.Kind, before), PeerSet("", p.Kind, is.PeerSet(p)))
		}
	}
	return out
}

// Lost returns the members of one set that another does not have, of networks the first addresses.
func Lost(was, is layout.PeerSet) (out []netip.Addr) {
	out = slices.DeleteFunc(slices.Clone(was.Addrs), isAmong(is.Addrs))
	still := isAmong(is.Ports)
	for _, at := range was.Ports {
		if !still(at) {
			out = append(out, at.Addr)
		}
	}
	var networks netipx.IPSetBuilder
	for _, n := range was.Networks {
		networks.AddPrefix(n)
	}
	for _, n := range is.Networks {
		networks.RemovePrefix(n)
	}
	if lost, err := networks.IPSet(); err == nil { // an error is of invalid prefixes, which no set has
		for _, r := range lost.Ranges() {
			out = append(out, r.From())
		}
	}
	return out
}
