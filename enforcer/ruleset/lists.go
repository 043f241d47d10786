package ruleset

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/policy"
)

// Lists has the members of the peers of rule lists.
type Lists struct{ peers map[policy.Peer]*peerMembers }

// NewLists returns lists without members.
func NewLists() *Lists { return &Lists{map[policy.Peer]*peerMembers{}} }

// peerMembers are the members of one peer. Lost ones of earlier states stay until the rules
// of the next state are in force.
type peerMembers struct {
	of   *policy.PeerSet // the members that rules ask, nil before the first
	lost nft.PeerSet
}

// askedPeers returns the peers of subjects' rule lists, sorted.
func askedPeers(subjects []*dataplane.Subject) []policy.Peer {
	lists, out := map[*dataplane.RuleList]bool{}, map[policy.Peer]bool{}
	for _, s := range subjects {
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

// Stage notes the newest members of the peers of subjects, and what they lack of those before.
func (l *Lists) Stage(subjects dataplane.Subjects, members func(policy.Peer) *policy.PeerSet) {
	for _, peer := range askedPeers(slices.Collect(maps.Values(subjects))) {
		m, now := l.peers[peer], members(peer)
		if m == nil {
			m = &peerMembers{of: now}
			l.peers[peer] = m
		}
		if m.of == now {
			continue
		}
		m.lose(PeerSet("", peer.Kind, m.of))
		m.of = now
		m.keepLost(PeerSet("", peer.Kind, now))
	}
}

// lose adds members to the lost ones.
func (m *peerMembers) lose(all nft.PeerSet) {
	m.lost.Addrs = slices.Concat(m.lost.Addrs, all.Addrs)
	m.lost.Networks = slices.Concat(m.lost.Networks, all.Networks)
	m.lost.Ports = slices.Concat(m.lost.Ports, all.Ports)
}

// keepLost leaves those lost that are no members.
func (m *peerMembers) keepLost(now nft.PeerSet) {
	m.lost.Addrs = slices.DeleteFunc(m.lost.Addrs, isAmong(now.Addrs))
	m.lost.Ports = slices.DeleteFunc(m.lost.Ports, isAmong(now.Ports))
	m.lost.Networks = slices.DeleteFunc(m.lost.Networks, func(n netip.Prefix) bool { return covers(now.Networks, n) })
}

// isAmong returns whether a value is among all.
func isAmong[T comparable](all []T) func(T) bool {
	among := map[T]bool{}
	for _, v := range all {
		among[v] = true
	}
	return func(v T) bool { return among[v] }
}

// covers tells whether networks hold another whole, one of them or several together.
func covers(networks []netip.Prefix, n netip.Prefix) bool {
	overlapping := false
	for _, o := range networks {
		if o.Overlaps(n) {
			if o.Bits() <= n.Bits() {
				return true
			}
			overlapping = true
		}
	}
	if !overlapping {
		return false
	}
	lower := netip.PrefixFrom(n.Addr(), n.Bits()+1)
	upper := n.Addr().AsSlice()
	upper[n.Bits()/8] |= 0x80 >> (n.Bits() % 8)
	a, _ := netip.AddrFromSlice(upper)
	return covers(networks, lower) && covers(networks, netip.PrefixFrom(a, n.Bits()+1))
}

// addTo adds the subjects that are staged, their lists and the peers of these to the state of the tables.
func (l *Lists) addTo(s *nft.State, subjects []*dataplane.Subject, members func(policy.Peer) *policy.PeerSet) {
	lists := map[string]bool{}
	for _, p := range subjects {
		if !p.Staged {
			continue
		}
		subject := nft.Subject{ID: dataplane.PodID(p.Pod), Addrs: p.Dispatched()}
		if p.Peers != nil {
			if subject.List = p.Peers.Rendered.ID; !lists[subject.List] {
				lists[subject.List] = true
				s.Lists = append(s.Lists, p.Peers.Rendered)
			}
		}
		s.Subjects = append(s.Subjects, subject)
		// An isolated subject may have addresses that are not: those that it gets next.
		s.Staged = append(s.Staged, subject.Addrs...)
	}
	s.Staged = slices.DeleteFunc(s.Staged, isAmong(s.Selected))
	slices.SortFunc(s.Lists, func(a, b nft.RuleList) int { return cmp.Compare(a.ID, b.ID) })
	for _, peer := range askedPeers(subjects) {
		s.Peers = append(s.Peers, l.peerSet(peer, members(peer)))
	}
}

// peerSet renders a peer with the lost members.
func (l *Lists) peerSet(peer policy.Peer, members *policy.PeerSet) nft.PeerSet {
	out := PeerSet(dataplane.ListPeersName(peer), peer.Kind, members)
	m := l.peers[peer]
	if m == nil || len(m.lost.Addrs)+len(m.lost.Networks)+len(m.lost.Ports) == 0 {
		return out
	}
	out.Addrs, out.Ports = slices.Concat(out.Addrs, m.lost.Addrs), slices.Concat(out.Ports, m.lost.Ports)
	all := slices.Concat(out.Networks, m.lost.Networks)
	slices.SortFunc(all, netip.Prefix.Compare)
	out.Networks = nil
	for _, n := range all {
		if k := len(out.Networks); k == 0 || !out.Networks[k-1].Overlaps(n) {
			out.Networks = append(out.Networks, n)
		}
	}
	return out
}

// Release forgets the peers that no subject asks, and returns the lost members of the others, of networks the first
// addresses. It notes the members of peers that no list asked before: a list that accepts everything hid them.
func (l *Lists) Release(subjects dataplane.Subjects, members func(policy.Peer) *policy.PeerSet) map[policy.Peer][]netip.Addr {
	all := askedPeers(slices.Collect(maps.Values(subjects)))
	for _, peer := range all {
		if l.peers[peer] == nil {
			l.peers[peer] = &peerMembers{of: members(peer)}
		}
	}
	asked := isAmong(all)
	out := map[policy.Peer][]netip.Addr{}
	for peer, m := range l.peers {
		if !asked(peer) {
			delete(l.peers, peer)
			continue
		}
		lost := slices.Clone(m.lost.Addrs)
		for _, n := range m.lost.Networks {
			lost = append(lost, n.Addr())
		}
		for _, at := range m.lost.Ports {
			lost = append(lost, at.Addr)
		}
		if len(lost) > 0 {
			out[peer] = lost
		}
	}
	return out
}

// Trim forgets the lost members.
func (l *Lists) Trim() {
	for _, m := range l.peers {
		m.lost = nft.PeerSet{}
	}
}

// Sizes returns how many sets of peers the tables have, and how many members these have.
func (l *Lists) Sizes() (sets, entries int) {
	for _, m := range l.peers {
		s := PeerSet("", 0, m.of)
		entries += len(s.Addrs) + len(s.Networks) + len(s.Ports)
	}
	return 2 * len(l.peers), entries // one of each family
}

// Recover reads, before the first state, the members that an earlier agent left of the peers of subjects.
func (l *Lists) Recover(ctx context.Context, tables *nft.Tables, subjects dataplane.Subjects, members func(policy.Peer) *policy.PeerSet) error {
	var sets []nft.PeerSet
	var of []policy.Peer
	for _, peer := range askedPeers(slices.Collect(maps.Values(subjects))) {
		if l.peers[peer] == nil {
			of, sets = append(of, peer), append(sets, PeerSet(dataplane.ListPeersName(peer), peer.Kind, nil))
		}
	}
	if len(sets) == 0 {
		return nil
	}
	found, err := tables.ReadPeers(ctx, sets)
	if err != nil {
		return err
	}
	for i, peer := range of {
		m := &peerMembers{of: members(peer), lost: found[i]}
		m.keepLost(PeerSet("", peer.Kind, m.of))
		l.peers[peer] = m
	}
	return nil
}
