package nftables

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/dataplane/nftrules"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/policy"
)

// everything is the ID in the tables of the list that accepts everything.
const everything = "all"

// AddTo adds the dataplane's part for a state to the state of the tables. It writes nothing.
func (x *packetFilter) AddTo(s *nft.State, st dataplane.State) {
	s.Serving, s.DNS, s.Recheck = st.Serving, st.Resolvers, st.Recheck
	x.addRules(s, st)
}

// addRules adds what subjects are made of.
func (x *packetFilter) addRules(s *nft.State, st dataplane.State) {
	s.Subjects, s.Lists, s.Staged = nil, nil, nil
	lists, sets := map[*dataplane.RuleList]nft.RuleList{}, map[string]nft.GrantSet{}
	for g := range st.Grants.Bounds() {
		sets[kernelName(g)] = setOf(g)
	}
	for _, p := range st.Subjects.Sorted() {
		if !p.Staged {
			continue
		}
		subject := nft.Subject{ID: dataplane.PodID(p.Pod), Addrs: p.Dispatched()}
		for _, ports := range p.Grants {
			g := dataplane.GrantSet{Pod: p.Pod, Ports: ports}
			set := setOf(g)
			sets[set.Name] = set
			if grants := (nft.Grants{Set: set, Ports: portsOf(g)}); !slices.ContainsFunc(subject.Grants, func(o nft.Grants) bool { return o.Set == set }) {
				subject.Grants = append(subject.Grants, grants)
			}
		}
		if p.Peers != nil {
			list := x.list(p.Peers)
			lists[p.Peers], subject.List = list, list.ID
		}
		s.Subjects = append(s.Subjects, subject)
		// An isolated subject may have addresses that are not: those that it gets next.
		s.Staged = append(s.Staged, subject.Addrs...)
	}
	s.Staged = slices.DeleteFunc(s.Staged, isAmong(s.Selected))
	s.Lists = slices.SortedFunc(maps.Values(lists), func(a, b nft.RuleList) int { return cmp.Compare(a.ID, b.ID) })
	s.Lists = slices.CompactFunc(s.Lists, func(a, b nft.RuleList) bool { return a.ID == b.ID })
	x.lists = lists
	s.GrantSets = nil
	for _, name := range sortedNames(sets) {
		s.GrantSets = append(s.GrantSets, sets[name])
	}
	s.Peers = slices.DeleteFunc(slices.Clone(s.Peers), func(p nft.PeerSet) bool { return strings.HasPrefix(p.Name, peersPrefix) })
	for _, peer := range askedPeers(st.Subjects) {
		s.Peers = append(s.Peers, x.peers.render(peer, st.Members))
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

// list renders a rule list.
func (x *packetFilter) list(l *dataplane.RuleList) nft.RuleList {
	if known, there := x.lists[l]; there {
		return known
	}
	out := nft.RuleList{ID: cmp.Or(l.ID, everything)}
	for _, r := range l.Rules {
		rule := &nft.TierRule{Action: nft.Accept, Ports: nftrules.Ports(r.Match.Ports)}
		if r.Match.Peer.Kind != policy.PeerAnywhere {
			rule.Peers = peersPrefix + nftrules.PeersName(r.Match.Peer)
		}
		out.Rules = append(out.Rules, rule)
	}
	return out
}
