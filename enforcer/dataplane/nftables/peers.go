package nftables

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/dataplane/nftrules"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/policy"
)

// peersPrefix begins the names of the sets of peers in rule lists: the members of those in
// ordered rules change at other times.
const peersPrefix = "list-"

// peers are the peers of rule lists.
type peers map[policy.Peer]*peerMembers

// peerMembers are the members of one peer. Lost ones of earlier states stay until the rules
// of the next state are in force.
type peerMembers struct {
	of   *policy.PeerSet // the members that rules ask, nil before the first
	lost nft.PeerSet
}

// askedPeers returns the peers of subjects' rule lists, sorted.
func askedPeers(subjects dataplane.Subjects) []policy.Peer {
	lists, out := map[*dataplane.RuleList]bool{}, map[policy.Peer]bool{}
	for _, s := range subjects {
		if s.Peers == nil || lists[s.Peers] {
			continue
		}
		lists[s.Peers] = true
		for _, r := range s.Peers.Rules {
			if r.Match.Peer.Kind != policy.PeerAnywhere {
				out[r.Match.Peer] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(out), policy.Peer.Compare)
}

// stage notes the newest members of peers, and what they lack of those before.
func (p peers) stage(st dataplane.State) {
	for _, peer := range askedPeers(st.Subjects) {
		m, now := p[peer], st.Members(peer)
		if m == nil {
			m = &peerMembers{of: now}
			p[peer] = m
		}
		if m.of == now {
			continue
		}
		m.lose(nftrules.PeerSet("", peer.Kind, m.of))
		m.of = now
		m.keepLost(nftrules.PeerSet("", peer.Kind, now))
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

// render renders a peer with the lost members.
func (p peers) render(peer policy.Peer, members func(policy.Peer) *policy.PeerSet) nft.PeerSet {
	out := nftrules.PeerSet(peersPrefix+nftrules.PeersName(peer), peer.Kind, members(peer))
	m := p[peer]
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

// release forgets the peers that no subject asks, and returns the lost members of the others.
func (p peers) release(subjects dataplane.Subjects) map[policy.Peer][]netip.Addr {
	asked := isAmong(askedPeers(subjects))
	out := map[policy.Peer][]netip.Addr{}
	for peer, m := range p {
		if !asked(peer) {
			delete(p, peer)
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

// trim forgets the lost members.
func (p peers) trim() {
	for _, m := range p {
		m.lost = nft.PeerSet{}
	}
}

func (p peers) sizes() (sets, entries int) {
	for _, m := range p {
		s := nftrules.PeerSet("", 0, m.of)
		entries += len(s.Addrs) + len(s.Networks) + len(s.Ports)
	}
	return 2 * len(p), entries // one of each family
}

// readPeers reads, before the first state, the members that an earlier agent left.
func (x *packetFilter) readPeers(ctx context.Context, st dataplane.State) error {
	if x.active || !x.follows {
		return nil
	}
	var sets []nft.PeerSet
	var of []policy.Peer
	for _, peer := range askedPeers(st.Subjects) {
		if x.peers[peer] == nil {
			of, sets = append(of, peer), append(sets, nftrules.PeerSet(peersPrefix+nftrules.PeersName(peer), peer.Kind, nil))
		}
	}
	if len(sets) == 0 {
		return nil
	}
	found, err := x.tables.ReadPeers(ctx, sets)
	if err != nil {
		return err
	}
	for i, peer := range of {
		m := &peerMembers{of: st.Members(peer), lost: found[i]}
		m.keepLost(nftrules.PeerSet("", peer.Kind, m.of))
		x.peers[peer] = m
	}
	return nil
}
